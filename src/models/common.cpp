#include "models/common.h"

#include <cmath>

#include "base/error.h"
#include "nn/rope_scaling.h"

namespace quince {
namespace {

namespace json = boost::json;

constexpr int kMostLayers = 4096;
constexpr int kMostWidth = 1 << 20;
constexpr int kMostVocabulary = 1 << 24;
constexpr int kMostPositions = 1 << 30;

constexpr std::string_view kHead = "lm_head.";

bool read_tie(const Config& config, const Weights& weights, bool otherwise) {
  if (const std::optional<bool> tied = config.maybe_flag("tie_word_embeddings")) {
    return *tied;
  }
  return otherwise || !weights.has("lm_head.weight");
}

}  // namespace

Activation read_activation(const Config& config, std::string_view key, std::string_view otherwise) {
  const std::string name = config.text(key, otherwise);
  if (name == "silu" || name == "swish") {
    return Activation::silu;
  }
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") {
    return Activation::gelu_tanh;
  }
  if (name == "gelu") {
    return Activation::gelu;
  }
  config.refuse(key, "silu, gelu or gelu_pytorch_tanh");
}

DecoderSpec read_decoder_sizes(
    const Config& config, const Weights& weights, int head_dim, bool tied) {
  DecoderSpec spec;
  spec.hidden_size = config.count("hidden_size", kMostWidth);
  spec.intermediate_size = config.count("intermediate_size", kMostWidth);
  spec.heads = config.count("num_attention_heads", kMostWidth);
  spec.kv_heads = config.count("num_key_value_heads", kMostWidth, spec.heads);
  if (spec.heads % spec.kv_heads != 0) {
    config.refuse(
        "num_key_value_heads", fmt::format("a divisor of \"num_attention_heads\", {}", spec.heads));
  }
  if (head_dim == 0 && !config.has("head_dim") && spec.hidden_size % spec.heads != 0) {
    config.refuse(
        "num_attention_heads",
        fmt::format("a divisor of \"hidden_size\", {}, or a \"head_dim\"", spec.hidden_size));
  }
  spec.head_dim = config.count(
      "head_dim",
      kMostWidth,
      head_dim != 0 ? head_dim : std::max(1, spec.hidden_size / spec.heads));
  if (spec.head_dim % 2 != 0) {
    config.refuse(
        "head_dim", fmt::format("an even number of dimensions to rotate, not {}", spec.head_dim));
  }
  spec.vocab_size = config.count("vocab_size", kMostVocabulary);
  spec.context_length = config.count("max_position_embeddings", kMostPositions, 2048);
  spec.norm_eps = static_cast<float>(config.positive("rms_norm_eps", 1e-6));
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
  spec.tied_embeddings = read_tie(config, weights, tied);
  spec.layers.resize(static_cast<size_t>(config.count("num_hidden_layers", kMostLayers)));
  return spec;
}

int rotated_dims(const Config& config, const DecoderSpec& spec) {
  const double share = config.positive("partial_rotary_factor", 1.0);
  const int dims = static_cast<int>(std::lround(share * spec.head_dim));
  if (share > 1.0 || dims < 2 || dims % 2 != 0) {
    config.refuse(
        "partial_rotary_factor", fmt::format("an even part of \"head_dim\", {}", spec.head_dim));
  }
  return dims;
}

RopeSpec read_rope(const Config& config, const DecoderSpec& spec) {
  const json::object* scaling = config.maybe_object("rope_parameters");
  return make_rope(
      {.dims = rotated_dims(config, spec),
       .theta = config.positive("rope_theta", 10000.0),
       .max_positions = spec.context_length,
       .scaling = scaling ? scaling : config.maybe_object("rope_scaling"),
       .source = config.source()});
}

std::optional<std::vector<bool>> read_layer_types(const Config& config, size_t layers) {
  const auto types = config.maybe_texts("layer_types");
  if (!types) {
    return std::nullopt;
  }
  if (types->size() != layers) {
    config.refuse("layer_types", fmt::format("{} entries, one for each layer", layers));
  }
  std::vector<bool> windowed;
  for (const std::string& type : *types) {
    if (type != "sliding_attention" && type != "full_attention") {
      config.refuse("layer_types", "full_attention or sliding_attention for each layer");
    }
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

void apply_qwen_window(const Config& config, DecoderSpec& spec) {
  if (!config.flag("use_sliding_window", false)) {
    return;
  }
  const std::optional<int> window = config.maybe_count("sliding_window", kMostPositions);
  if (!window) {
    return;
  }
  const auto windowed = read_layer_types(config, spec.layers.size());
  const int first = config.whole("max_window_layers", kMostLayers, 28);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (windowed ? (*windowed)[i] : static_cast<int>(i) >= first) {
      spec.layers[i].window = *window;
    }
  }
}

void repair_names(Weights& weights) {
  const std::pair<std::string_view, std::string_view> prefixes[] = {
      {"language_model.model.", "model."},
      {"language_model.lm_head.", kHead},
      {"model.language_model.", "model."},
      {"embed_tokens.", "model.embed_tokens."},
      {"layers.", "model.layers."},
      {"norm.", "model.norm."},
  };
  const std::string_view useless[] = {
      "vision_tower.",
      "multi_modal_projector.",
      "model.vision_tower.",
      "model.multi_modal_projector."};
  for (const std::string& name : weights.names()) {
    if (name.ends_with("rotary_emb.inv_freq")) {
      weights.drop(name);
      continue;
    }
    for (const std::string_view prefix : useless) {
      if (name.starts_with(prefix)) {
        weights.drop(name);
      }
    }
    for (const auto& [from, to] : prefixes) {
      if (name.starts_with(from) && weights.has(name)) {
        weights.rename(name, std::string(to) + name.substr(from.size()));
        break;
      }
    }
  }
}

void drop_spare_head(Weights& weights) {
  for (const std::string& name : weights.names()) {
    if (name.starts_with(kHead)) {
      weights.drop(name);
    }
  }
}

}  // namespace quince
