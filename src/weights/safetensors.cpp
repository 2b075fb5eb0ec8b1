#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/error.h"
#include "weights/foreign_file.h"
#include "weights/ggml_blocks.h"
#include "weights/json_file.h"

namespace quince {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the reference reader's limit
constexpr size_t kMaxDimensions = 16;

// The names are those of TensorTypeInfo; these are the types that the format has.
constexpr std::array kTypes{
    TensorType::f64,
    TensorType::f32,
    TensorType::f16,
    TensorType::bf16,
    TensorType::f8_e4m3,
    TensorType::f8_e5m2,
    TensorType::i64,
    TensorType::i32,
    TensorType::i16,
    TensorType::i8,
    TensorType::u64,
    TensorType::u32,
    TensorType::u16,
    TensorType::u8,
    TensorType::boolean};

struct Entry {
  TensorView view;
  uint64_t begin = 0;
  uint64_t end = 0;
};

uint64_t natural(const json::value& value, std::string_view source, std::string_view what) {
  if (value.is_int64() && value.get_int64() >= 0) {
    return static_cast<uint64_t>(value.get_int64());
  }
  throw UserError(
      "{}: {} holds {}, want a whole number >= 0", source, what, json::serialize(value));
}

const json::array& array_field(
    const json::object& object, std::string_view key, std::string_view where) {
  const json::value* value = object.if_contains(key);
  if (!value || !value->is_array()) {
    throw UserError("{}: \"{}\" is missing or not a list", where, key);
  }
  return value->get_array();
}

Entry parse_entry(std::string_view name, const json::value& value, std::string_view source) {
  const std::string where = fmt::format("{}: tensor {}", source, name);
  if (!value.is_object()) {
    throw UserError("{}: its entry is not an object", where);
  }
  const json::object& object = value.get_object();
  const auto dtype = json_string(object, "dtype", where);
  if (!dtype) {
    throw UserError("{}: \"dtype\" is missing", where);
  }
  const auto type = safetensors_type(*dtype);
  if (!type) {
    throw UserError("{}: element type {} is not supported", where, *dtype);
  }
  Entry entry;
  entry.view.name = name;
  entry.view.type = *type;
  const json::array& shape = array_field(object, "shape", where);
  if (shape.size() > kMaxDimensions) {
    throw UserError(
        "{}: has {} dimensions, at most {} make sense", where, shape.size(), kMaxDimensions);
  }
  for (const json::value& dimension : shape) {
    entry.view.shape.push_back(static_cast<int64_t>(natural(dimension, where, "\"shape\"")));
  }
  const json::array& offsets = array_field(object, "data_offsets", where);
  if (offsets.size() != 2) {
    throw UserError("{}: \"data_offsets\" has {} numbers, want 2", where, offsets.size());
  }
  entry.begin = natural(offsets[0], where, "\"data_offsets\"");
  entry.end = natural(offsets[1], where, "\"data_offsets\"");
  if (entry.end < entry.begin) {
    throw UserError("{}: data_offsets [{}, {}] are reversed", where, entry.begin, entry.end);
  }
  const auto want = tensor_bytes(entry.view.type, entry.view.shape);
  if (!want) {
    throw UserError(
        "{}: shape {} has more elements than can be counted", where, shape_text(entry.view.shape));
  }
  if (*want != entry.end - entry.begin) {
    throw UserError(
        "{}: {} of shape {} needs {} bytes, but data_offsets [{}, {}] hold {}",
        where,
        *dtype,
        shape_text(entry.view.shape),
        *want,
        entry.begin,
        entry.end,
        entry.end - entry.begin);
  }
  return entry;
}

// Tensors must cover the data part exactly: sorted by offset, each begins where the last one ended.
void check_cover(const std::vector<Entry>& entries, uint64_t data_size, std::string_view source) {
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at) {
      throw UserError(
          "{}: tensor {}: its data begins at {}, {} the tensor before it, which ends at {}",
          source,
          entry.view.name,
          entry.begin,
          entry.begin < at ? "inside" : "with a hole after",
          at);
    }
    at = entry.end;
    if (at > data_size) {
      throw UserError(
          "{}: tensor {}: its data ends at byte {} of the data part, but the file holds {} (cut "
          "off? "
          "download it again)",
          source,
          entry.view.name,
          at,
          data_size);
    }
  }
  if (at != data_size) {
    throw UserError(
        "{}: the tensors end at byte {} of the data part, but the file holds {}",
        source,
        at,
        data_size);
  }
}

}  // namespace

std::optional<std::string_view> safetensors_dtype(TensorType type) {
  if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end()) {
    return std::nullopt;
  }
  return info(type).name;
}

std::optional<TensorType> safetensors_type(std::string_view dtype) {
  for (const TensorType type : kTypes) {
    if (info(type).name == dtype) {
      return type;
    }
  }
  return std::nullopt;
}

SafetensorsContent parse_safetensors(
    std::span<const std::byte> bytes,
    std::string_view source,
    std::shared_ptr<const MappedFile> file) {
  if (bytes.size() < 8) {
    throw UserError(
        "{}: has {} bytes, too few for a safetensors file (cut off? download it again)",
        source,
        bytes.size());
  }
  const auto header_size = load_unaligned<uint64_t>(bytes.data());
  const bool sound = header_size > 0 && header_size <= kMaxHeader;
  if (const std::string_view what = foreign_file(bytes); !sound && !what.empty()) {
    throw UserError("{}: not a safetensors file: it is {}", source, what);
  }
  if (header_size > kMaxHeader) {
    throw UserError(
        "{}: not a safetensors file: its header would have {} bytes, the limit is {}",
        source,
        header_size,
        kMaxHeader);
  }
  if (header_size > bytes.size() - 8) {
    throw UserError(
        "{}: its header needs {} bytes, the file holds {} (cut off? download it again)",
        source,
        header_size + 8,
        bytes.size());
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_size);
  if (!text.starts_with('{')) {
    throw UserError("{}: not a safetensors file: its header does not begin with '{{'", source);
  }
  const json::object header =
      parse_json_object(text, source, {.max_depth = 8, .unique_keys = true});

  SafetensorsContent content;
  std::vector<Entry> entries;
  entries.reserve(header.size());
  for (const auto& [name, value] : header) {
    if (name == "__metadata__") {
      if (!value.is_object()) {
        throw UserError("{}: __metadata__ is not an object", source);
      }
      content.metadata = value.get_object();
      continue;
    }
    entries.push_back(parse_entry(name, value, source));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const auto data = bytes.subspan(8 + header_size);
  check_cover(entries, data.size(), source);
  content.tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.view.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    entry.view.file = file;
    content.tensors.push_back(std::move(entry.view));
  }
  return content;
}

SafetensorsContent open_safetensors(const fs::path& path) {
  auto file = MappedFile::open(path);
  return parse_safetensors(file->bytes(), path.string(), file);
}

}  // namespace quince
