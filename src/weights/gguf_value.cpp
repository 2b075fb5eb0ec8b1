// Metadata values of GGUF files: conversions out of the mapping.
#include <cmath>

#include "weights/ggml_blocks.h"
#include "weights/gguf.h"

namespace quince {

namespace json = boost::json;

namespace {

// Calls use(T) with the scalar at `at`. False for strings and arrays.
template <typename Use>
bool with_scalar(GgufType type, const std::byte* at, Use use) {
  switch (type) {
    case GgufType::u8:
      use(load_unaligned<uint8_t>(at));
      return true;
    case GgufType::i8:
      use(load_unaligned<int8_t>(at));
      return true;
    case GgufType::u16:
      use(load_unaligned<uint16_t>(at));
      return true;
    case GgufType::i16:
      use(load_unaligned<int16_t>(at));
      return true;
    case GgufType::u32:
      use(load_unaligned<uint32_t>(at));
      return true;
    case GgufType::i32:
      use(load_unaligned<int32_t>(at));
      return true;
    case GgufType::f32:
      use(load_unaligned<float>(at));
      return true;
    case GgufType::boolean:
      use(load_unaligned<uint8_t>(at) != 0);
      return true;
    case GgufType::u64:
      use(load_unaligned<uint64_t>(at));
      return true;
    case GgufType::i64:
      use(load_unaligned<int64_t>(at));
      return true;
    case GgufType::f64:
      use(load_unaligned<double>(at));
      return true;
    case GgufType::string:
    case GgufType::array:
      return false;
  }
  return false;
}

// Calls use(index, T) for every element of an array of scalars.
template <typename Use>
void each_number(const GgufValue& v, Use use) {
  if (v.type != GgufType::array || v.element == GgufType::string || v.element == GgufType::array ||
      v.count == 0) {
    return;
  }
  const size_t step = v.bytes.size() / v.count;
  for (uint64_t i = 0; i < v.count; ++i) {
    with_scalar(v.element, v.bytes.data() + i * step, [&](auto number) { use(i, number); });
  }
}

template <typename To>
std::vector<To> numbers_as(const GgufValue& v) {
  std::vector<To> result;
  result.reserve(
      v.type == GgufType::array && v.element != GgufType::string && v.element != GgufType::array
          ? v.count
          : 0);
  each_number(v, [&](uint64_t, auto number) {
    using From = decltype(number);
    if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
      // A number that does not fit (or NaN) becomes 0 instead of undefined behaviour.
      result.push_back(std::abs(number) < From(0x7fffffff) ? static_cast<To>(number) : To(0));
    } else {
      result.push_back(static_cast<To>(number));
    }
  });
  return result;
}

json::value array_json(const GgufValue& v) {
  json::array out;
  if (v.element == GgufType::string) {
    for (const std::string_view text : v.strings()) {
      out.emplace_back(json::string_view(text.data(), text.size()));
    }
    return out;
  }
  each_number(v, [&](uint64_t, auto number) {
    if constexpr (std::is_same_v<decltype(number), bool>) {
      out.emplace_back(number);
    } else if constexpr (std::is_floating_point_v<decltype(number)>) {
      out.emplace_back(static_cast<double>(number));
    } else if constexpr (std::is_signed_v<decltype(number)>) {
      out.emplace_back(static_cast<int64_t>(number));
    } else {
      out.emplace_back(static_cast<uint64_t>(number));
    }
  });
  return out;
}

}  // namespace

std::optional<int64_t> GgufValue::as_int() const {
  std::optional<int64_t> result;
  with_scalar(type, bytes.data(), [&](auto number) {
    using T = decltype(number);
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (number <= static_cast<uint64_t>(INT64_MAX)) {
        result = static_cast<int64_t>(number);
      }
    } else if constexpr (std::is_integral_v<T>) {
      result = number;
    }
  });
  return result;
}

std::optional<double> GgufValue::as_float() const {
  std::optional<double> result;
  with_scalar(type, bytes.data(), [&](auto number) {
    if constexpr (!std::is_same_v<decltype(number), bool>) {
      result = static_cast<double>(number);
    }
  });
  return result;
}

std::optional<bool> GgufValue::as_bool() const {
  const auto number = as_int();
  return number ? std::optional<bool>(*number != 0) : std::nullopt;
}

std::optional<std::string_view> GgufValue::as_string() const {
  if (type != GgufType::string) {
    return std::nullopt;
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::vector<std::string_view> GgufValue::strings() const {
  std::vector<std::string_view> result;
  if (type != GgufType::array || element != GgufType::string) {
    return result;
  }
  result.reserve(count);
  const auto* at = reinterpret_cast<const char*>(bytes.data());
  for (uint64_t i = 0; i < count; ++i) {
    const auto length = load_unaligned<uint64_t>(at);
    result.emplace_back(at + sizeof(uint64_t), length);
    at += sizeof(uint64_t) + length;
  }
  return result;
}

std::vector<double> GgufValue::numbers() const {
  return numbers_as<double>(*this);
}

std::vector<int32_t> GgufValue::ints() const {
  return numbers_as<int32_t>(*this);
}

std::vector<float> GgufValue::floats() const {
  return numbers_as<float>(*this);
}

json::value GgufValue::to_json(size_t max_array) const {
  if (type == GgufType::array) {
    if (count <= max_array && element != GgufType::array) {
      return array_json(*this);
    }
    return json::object{{"type", gguf_type_name(element)}, {"length", count}};
  }
  if (const auto text = as_string()) {
    return json::value(json::string_view(text->data(), text->size()));
  }
  json::value result;
  with_scalar(type, bytes.data(), [&](auto number) {
    using T = decltype(number);
    if constexpr (std::is_same_v<T, bool>) {
      result = number;
    } else if constexpr (std::is_floating_point_v<T>) {
      result = static_cast<double>(number);
    } else if constexpr (std::is_signed_v<T>) {
      result = static_cast<int64_t>(number);
    } else {
      result = static_cast<uint64_t>(number);
    }
  });
  return result;
}

}  // namespace quince
