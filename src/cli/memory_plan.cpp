#include "cli/memory_plan.h"

#include <algorithm>
#include <cmath>

#include "kernels/packed.h"

namespace quince::cli {

namespace json = boost::json;

namespace {

// A whole number above 0 of the config; 0 when there is none.
int64_t number(const json::object& config, const char* key) {
  const json::value* value = config.if_contains(key);
  int64_t result = 0;
  if (value != nullptr && value->is_int64()) {
    result = value->get_int64();
  }
  return result > 0 && result < (int64_t{1} << 40) ? result : 0;
}

const json::object& text_part(const json::object& config) {
  const json::value* text = config.if_contains("text_config");
  return text != nullptr && text->is_object() ? text->get_object() : config;
}

}  // namespace

std::optional<KvFormat> parse_kv_format(std::string_view text) {
  if (text == "f32") {
    return KvFormat::f32;
  }
  if (text == "f16") {
    return KvFormat::f16;
  }
  if (text == "bf16") {
    return KvFormat::bf16;
  }
  if (text == "q8" || text == "q8_0") {
    return KvFormat::q8;
  }
  if (text == "q4" || text == "q4_0") {
    return KvFormat::q4;
  }
  return std::nullopt;
}

const char* name(KvFormat type) {
  switch (type) {
    case KvFormat::f32:
      return "f32";
    case KvFormat::f16:
      return "f16";
    case KvFormat::bf16:
      return "bf16";
    case KvFormat::q8:
      return "q8";
    case KvFormat::q4:
      return "q4";
  }
  return "";
}

double bits_per_element(KvFormat type) {
  switch (type) {
    case KvFormat::f32:
      return 32;
    case KvFormat::f16:
    case KvFormat::bf16:
      return 16;
    case KvFormat::q8:
      return 8 + 32.0 / 64;
    case KvFormat::q4:
      return 4 + 32.0 / 64;
  }
  return 0;
}

std::vector<KvLayer> kv_layers(const DecoderSpec& spec) {
  std::vector<KvLayer> layers;
  for (const LayerSpec& layer : spec.layers) {
    layers.push_back({int64_t{2} * spec.kv_heads * spec.head_dim, layer.window});
  }
  return layers;
}

std::vector<KvLayer> kv_layers(const json::object& whole) {
  const json::object& config = text_part(whole);
  int64_t count = number(config, "num_hidden_layers");
  int64_t heads = number(config, "num_attention_heads");
  int64_t kv_heads = number(config, "num_key_value_heads");
  int64_t head_dim = number(config, "head_dim");
  int64_t hidden = number(config, "hidden_size");
  if (kv_heads == 0) {
    kv_heads = heads;
  }
  if (head_dim == 0 && heads > 0) {
    head_dim = hidden / heads;
  }
  int64_t elements = 2 * kv_heads * head_dim;
  if (int64_t rank = number(config, "kv_lora_rank")) {  // latent attention keeps one vector a token
    elements = rank + number(config, "qk_rope_head_dim");
  }
  if (count == 0 || count > 100000 || elements <= 0) {
    return {};
  }
  std::vector<KvLayer> layers(static_cast<size_t>(count), KvLayer{elements, 0});
  const json::value* types = config.if_contains("layer_types");
  int64_t window = number(config, "sliding_window");
  if (types != nullptr && types->is_array()) {
    const json::array& list = types->get_array();
    for (size_t i = 0; i < std::min(list.size(), layers.size()); i++) {
      if (!list[i].is_string()) {
        continue;
      }
      std::string_view type = list[i].get_string();
      if (type == "sliding_attention") {
        layers[i].window = window;
      } else if (type == "linear_attention" || type == "conv" || type == "mamba") {
        layers[i].elements = 0;  // a state of fixed size instead of keys and values
      }
    }
  }
  return layers;
}

uint64_t kv_bytes(const std::vector<KvLayer>& layers, int64_t context, KvFormat type) {
  double bits = 0;
  for (const KvLayer& layer : layers) {
    int64_t tokens = layer.window > 0 ? std::min(layer.window, context) : context;
    bits +=
        static_cast<double>(layer.elements) * static_cast<double>(tokens) * bits_per_element(type);
  }
  return static_cast<uint64_t>(std::ceil(bits / 8));
}

uint64_t workspace_bytes(const json::object& whole, int64_t rows) {
  const json::object& config = text_part(whole);
  double hidden = static_cast<double>(number(config, "hidden_size"));
  double inner = static_cast<double>(number(config, "intermediate_size"));
  double heads = static_cast<double>(number(config, "num_attention_heads"));
  double head_dim = static_cast<double>(number(config, "head_dim"));
  double attention = head_dim > 0 ? heads * head_dim : hidden;
  double vocabulary = static_cast<double>(number(config, "vocab_size"));
  // Residual, normed input and layer output; queries, keys, values and the attention's result;
  // gate, up and their product. Then one row of logits and the sampler's copy of it.
  double row = 3 * hidden + 4 * attention + 3 * inner;
  return static_cast<uint64_t>(4 * (row * static_cast<double>(rows) + 2 * vocabulary));
}

uint64_t held_bytes(const TensorView& tensor) {
  if (tensor.shape.size() < 2) {
    return static_cast<uint64_t>(tensor.size()) * 4;  // norms and biases become f32
  }
  kernels::PackedFormat format;
  try {
    kernels::PackSource source;
    source.weight = tensor;
    format = kernels::PackedMatrix::packed_format(source);
  } catch (const std::exception&) {
    return tensor.bytes.size();  // not a matrix: counted as it lies in the file
  }
  double bits = format.bits;
  switch (format.kind) {
    case kernels::PackedKind::two_level:
      return tensor.bytes.size();
    case kernels::PackedKind::direct:
      bits += (format.biased ? 32.0 : 16.0) / std::max(format.group, 1);
      break;
    case kernels::PackedKind::f32:
    case kernels::PackedKind::f16:
    case kernels::PackedKind::bf16:
      break;
  }
  return static_cast<uint64_t>(std::ceil(static_cast<double>(tensor.size()) * bits / 8));
}

}  // namespace quince::cli
