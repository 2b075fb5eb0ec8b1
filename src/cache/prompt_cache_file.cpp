#include "cache/prompt_cache_file.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>

#include <boost/json.hpp>

#include "base/error.h"
#include "cache/prompt_cache_sum.h"
#include "weights/json_file.h"
#include "weights/safetensors.h"

namespace quince {

namespace json = boost::json;

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 31;
constexpr int64_t kMostLayers = 4096;

// The file's tensors and metadata by their flattened names.
struct Flat {
  std::string_view source;
  std::map<std::string, TensorView, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> texts;

  const TensorView& tensor(const std::string& name) const {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      throw UserError("{}: not a prompt cache: tensor {} is missing", source, name);
    }
    return found->second;
  }
  std::string text(std::string_view name) const {
    const auto found = texts.find(name);
    return found == texts.end() ? "" : found->second;
  }
  // A number of a layer's state: a tensor of one element.
  int64_t scalar(const std::string& name) const {
    const TensorView& view = tensor(name);
    if (view.size() != 1 || view.bytes.empty() || info(view.type).block != 1) {
      throw UserError(
          "{}: tensor {} of shape {} is no number", source, name, shape_text(view.shape));
    }
    float value = 0;
    if (view.type == TensorType::i32) {
      int32_t whole = 0;
      std::memcpy(&whole, view.bytes.data(), sizeof(whole));
      return whole;
    }
    if (view.type == TensorType::i64) {
      int64_t whole = 0;
      std::memcpy(&whole, view.bytes.data(), sizeof(whole));
      return whole;
    }
    decode_rows(view, 0, 1, &value);
    return value >= 0 && value < 1e9f ? static_cast<int64_t>(value) : -1;
  }
  int64_t number(const std::string& name) const {
    const std::string value = text(name);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size()) {
      throw UserError("{}: its metadata {} is \"{}\", want a number", source, name, value);
    }
    return number;
  }
};

struct State {  // of a layer, in the order of its class
  const Flat& flat;
  int layer;
  bool old;  // numbers are in the metadata
  int64_t at(int new_place, int old_place) const {
    return old ? flat.number(fmt::format("0.{}.{}", layer, old_place))
               : flat.scalar(fmt::format("{}.{}", layer, new_place));
  }
};

void check(bool good, const Flat& flat, int layer, std::string_view what) {
  if (!good) {
    throw UserError("{}: layer {}: {}", flat.source, layer, what);
  }
}

void read_parts(
    const Flat& flat, int layer, int which, bool coded, std::array<TensorView, 3>& out) {
  for (size_t i = 0; i < (coded ? 3 : 1); ++i) {
    out[i] = flat.tensor(
        coded ? fmt::format("{}.{}.{}", layer, which, i) : fmt::format("{}.{}", layer, which));
    check(
        out[i].shape.size() == 4 && out[i].shape[0] == 1 && out[i].shape[1] > 0,
        flat,
        layer,
        "keys and values have another shape than [1, heads, rows, width]");
    const bool floats = out[i].type == TensorType::f32 || out[i].type == TensorType::f16 ||
                        out[i].type == TensorType::bf16;
    check(
        coded && i == 0 ? out[i].type == TensorType::u32 : floats,
        flat,
        layer,
        "keys and values are neither f32, f16, bf16 nor codes");
  }
}

int64_t width(const PromptCacheLayer& layer, const std::array<TensorView, 3>& parts) {
  return layer.bits > 0 ? parts[0].shape[3] * 32 / layer.bits : parts[0].shape[3];
}

// Everything that row_of() and read() rely on.
void check_layer(const Flat& flat, int i, const PromptCacheLayer& layer) {
  check(layer.length > 0 && layer.length < kMostTokens, flat, i, "it holds no token");
  check(
      layer.bits == 0 || ((layer.bits == 2 || layer.bits == 4 || layer.bits == 8) &&
                          layer.group >= 1 && layer.group <= 1 << 20),
      flat,
      i,
      "quantized with other than 2, 4 or 8 bits, or with a bad group size");
  const int64_t dim = width(layer, layer.keys);
  check(dim > 0 && dim <= 1 << 16, flat, i, "its heads have no width");
  for (const auto* parts : {&layer.keys, &layer.values}) {
    for (size_t p = 0; p < (layer.bits > 0 ? 3u : 1u); ++p) {
      const std::vector<int64_t>& shape = (*parts)[p].shape;
      check(
          shape[1] == layer.keys[0].shape[1] && shape[2] == layer.rows,
          flat,
          i,
          "its keys and values have different shapes");
      check(p == 0 || shape[3] == dim / layer.group, flat, i, "scales do not fit the codes' width");
    }
    check(width(layer, *parts) == dim, flat, i, "its keys and values have different widths");
  }
  check(
      layer.bits == 0 || dim % layer.group == 0, flat, i, "its width is no multiple of its group");
  if (layer.max_size == 0) {
    check(layer.length <= layer.rows, flat, i, "it holds fewer rows than tokens");
    return;
  }
  check(
      layer.keep >= 0 && layer.keep < layer.max_size && layer.max_size < kMostTokens &&
          layer.next >= 0 && layer.next <= layer.rows,
      flat,
      i,
      "its rotation makes no sense");
  check(
      layer.next == layer.rows || layer.next >= layer.keep || layer.next >= layer.length,
      flat,
      i,
      "its rotation makes no sense");
}

PromptCacheLayer parse_layer(const Flat& flat, int i, std::string kind, bool old) {
  PromptCacheLayer layer;
  const State state{flat, i, old};
  const bool coded = kind == "QuantizedKVCache";
  read_parts(flat, i, 0, coded, layer.keys);
  read_parts(flat, i, 1, coded, layer.values);
  layer.rows = layer.keys[0].shape[2];
  if (kind == "KVCache") {
    layer.length = old ? layer.rows : flat.scalar(fmt::format("{}.2", i));
  } else if (kind == "RotatingKVCache") {
    layer.length = state.at(2, 2);
    layer.keep = state.at(3, 0);
    layer.max_size = state.at(4, 1);
    layer.next = state.at(5, 3);
    check(layer.max_size > 0, flat, i, "its rotation makes no sense");
  } else if (coded) {
    layer.length = state.at(2, 0);
    layer.group = static_cast<int>(std::clamp<int64_t>(state.at(3, 1), 0, 1 << 24));
    layer.bits = static_cast<int>(std::clamp<int64_t>(state.at(4, 2), 1, 1 << 24));
  } else {
    throw UserError(
        "{}: layer {} is a {}, want KVCache, RotatingKVCache or QuantizedKVCache",
        flat.source,
        i,
        kind);
  }
  layer.kind = std::move(kind);
  check_layer(flat, i, layer);
  return layer;
}

std::vector<int32_t> parse_tokens(const Flat& flat, int64_t length) {
  std::vector<int32_t> tokens;
  const std::string text = flat.text("0.quince_tokens");
  if (text.empty()) {
    return tokens;
  }
  const json::value list = parse_json(text, flat.source, {.max_depth = 4});
  const auto* array = list.if_array();
  for (const json::value& value : array ? *array : json::array()) {
    const int64_t* number = value.if_int64();
    if (!number || *number < 0 || *number > std::numeric_limits<int32_t>::max()) {
      throw UserError("{}: {} is not a token", flat.source, json::serialize(value));
    }
    tokens.push_back(static_cast<int32_t>(*number));
  }
  if (static_cast<int64_t>(tokens.size()) != length) {
    throw UserError("{}: has {} tokens, and names {}", flat.source, length, tokens.size());
  }
  return tokens;
}

// Files of ours have a sum.
void check_sum(
    const Flat& flat, const SafetensorsContent& content, std::span<const std::byte> bytes) {
  const std::string stated = flat.text(kPromptCacheSum);
  if (stated.empty() && flat.text("0.quince_model").empty()) {
    return;
  }
  const auto size = static_cast<size_t>(content.tensors.front().bytes.data() - bytes.data());
  PromptCacheSum sum(std::string(reinterpret_cast<const char*>(bytes.data()), size));
  for (const TensorView& tensor : content.tensors) {
    sum.add(tensor.bytes);
  }
  if (prompt_cache_sum_text(sum.finish()) != stated) {
    throw UserError(
        "{}: damaged: its checksum is not that of what it holds; make it again", flat.source);
  }
}

void read_part(
    const PromptCacheLayer& layer,
    const std::array<TensorView, 3>& parts,
    int64_t row,
    float* out) {
  if (layer.bits == 0) {
    decode_rows(parts[0], row, 1, out);
    return;
  }
  const int64_t groups = parts[1].shape[3];
  std::vector<float> scales(static_cast<size_t>(groups));
  std::vector<float> biases(static_cast<size_t>(groups));
  decode_rows(parts[1], row, 1, scales.data());
  decode_rows(parts[2], row, 1, biases.data());
  const std::byte* words = parts[0].bytes.data() + row * parts[0].shape[3] * 4;
  const int per_word = 32 / layer.bits;
  for (int64_t w = 0; w < parts[0].shape[3]; ++w) {
    uint32_t word = 0;
    std::memcpy(&word, words + w * 4, sizeof(word));
    for (int k = 0; k < per_word; ++k) {
      const int64_t d = w * per_word + k;
      const auto group = static_cast<size_t>(d / layer.group);
      const uint32_t code = word >> (k * layer.bits) & ((1u << layer.bits) - 1);
      out[d] = scales[group] * static_cast<float>(code) + biases[group];
    }
  }
}

}  // namespace

std::optional<int64_t> PromptCacheLayer::row_of(int64_t position) const {
  if (position < 0 || position >= length) {
    return std::nullopt;
  }
  if (max_size == 0) {
    return position;
  }
  // In order of time: the kept rows, then the others from the oldest on.
  const bool turned = next < rows && next < length;
  const int64_t held = next == rows || turned ? rows : next;
  int64_t place = position;
  if (length > held && position >= keep) {
    place = position - (length - held);
    if (place < keep) {
      return std::nullopt;
    }
  }
  if (place >= held) {
    return std::nullopt;
  }
  if (turned && place >= keep) {
    const int64_t newer = rows - next;  // rows between next and the end are the oldest
    return place - keep < newer ? next + place - keep : place - newer;
  }
  return place;
}

void PromptCacheFile::read(
    int layer, int64_t position, int64_t stride, float* keys, float* values) const {
  const PromptCacheLayer& its = layers[static_cast<size_t>(layer)];
  const int64_t row = *its.row_of(position);
  for (int64_t head = 0; head < kv_heads; ++head) {
    read_part(its, its.keys, head * its.rows + row, keys + head * stride);
    read_part(its, its.values, head * its.rows + row, values + head * stride);
  }
}

PromptCacheFile parse_prompt_cache(
    std::span<const std::byte> bytes,
    std::string_view source,
    const std::shared_ptr<const MappedFile>& file) {
  const SafetensorsContent content = parse_safetensors(bytes, source, file);
  Flat flat{source, {}, {}};
  for (const TensorView& tensor : content.tensors) {
    flat.tensors.emplace(tensor.name, tensor);
  }
  for (const auto& [key, value] : content.metadata) {
    if (value.is_string()) {
      flat.texts.emplace(key, value.as_string());
    }
  }
  // Classes are the second of three lists, in older files, which have the numbers first, the third.
  const bool old = flat.text("2.0").ends_with("Cache");
  const std::string_view classes = old ? "2" : "1";
  PromptCacheFile out;
  out.source = source;
  for (int i = 0; i < kMostLayers; ++i) {
    std::string kind = flat.text(fmt::format("{}.{}", classes, i));
    if (kind.empty()) {
      break;
    }
    out.layers.push_back(parse_layer(flat, i, std::move(kind), old));
  }
  if (out.layers.empty()) {
    throw UserError("{}: not a prompt cache: its metadata name no cache of a layer", source);
  }
  const PromptCacheLayer& first = out.layers.front();
  out.length = first.length;
  out.kv_heads = static_cast<int>(std::min<int64_t>(first.keys[0].shape[1], 1 << 20));
  out.head_dim = static_cast<int>(width(first, first.keys));
  for (size_t i = 0; i < out.layers.size(); ++i) {
    const PromptCacheLayer& layer = out.layers[i];
    check(
        layer.length == out.length && layer.keys[0].shape[1] == out.kv_heads &&
            width(layer, layer.keys) == out.head_dim,
        flat,
        static_cast<int>(i),
        "it has another length, or other heads, than the first");
  }
  const std::string_view noted = old ? "1." : "0.";
  for (const auto& [key, value] : flat.texts) {
    if (key.starts_with(noted) && !key.starts_with("0.quince_")) {
      out.notes.emplace_back(key.substr(noted.size()), value);
    }
  }
  if (const std::string model = flat.text("0.quince_model"); !model.empty() && !old) {
    out.model = model;
    out.tokens = parse_tokens(flat, out.length);
  }
  check_sum(flat, content, bytes);
  return out;
}

PromptCacheFile open_prompt_cache(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  return parse_prompt_cache(file->bytes(), path.string(), file);
}

}  // namespace quince
