#include "weights/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numbers>

#include <fmt/ranges.h>

#include "base/error.h"

namespace quince {

namespace json = boost::json;

namespace {

struct Architecture {
  std::string_view gguf;
  std::string_view model_type;
  std::string_view class_name;
};

constexpr std::array kArchitectures{
    Architecture{"gemma3", "gemma3_text", "Gemma3ForCausalLM"},
    Architecture{"llama", "llama", "LlamaForCausalLM"},
    Architecture{"qwen2", "qwen2", "Qwen2ForCausalLM"},
    Architecture{"qwen3", "qwen3", "Qwen3ForCausalLM"},
};

// f32 metadata as the decimal its author meant: 1e-05 and not 9.99999974e-06.
double shortest(double value) {
  return std::strtod(fmt::format("{}", static_cast<float>(value)).c_str(), nullptr);
}

// The keys of one architecture ("llama.block_count").
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view architecture)
      : file_(file), architecture_(architecture) {}

  std::string name(std::string_view key) const {
    return fmt::format("{}.{}", architecture_, key);
  }

  std::optional<int64_t> find_int(std::string_view key) const {
    return uniform(key);
  }

  int64_t positive(std::string_view key) const {
    const auto value = uniform(key);
    if (!value) {
      throw UserError("{}: the metadata key {} is missing", file_.source(), name(key));
    }
    return check_positive(key, *value);
  }

  int64_t positive_or(std::string_view key, int64_t fallback) const {
    const auto value = uniform(key);
    return value ? check_positive(key, *value) : fallback;
  }

  std::optional<double> find_float(std::string_view key) const {
    const auto value = file_.get_float(name(key));
    if (value && !std::isfinite(*value)) {
      throw UserError("{}: {} is not a finite number", file_.source(), name(key));
    }
    return value ? std::optional(shortest(*value)) : std::nullopt;
  }

  std::optional<std::string_view> find_string(std::string_view key) const {
    return file_.get_string(name(key));
  }

  const GgufValue* find(std::string_view key) const {
    return file_.find(name(key));
  }

  const GgufFile& file() const {
    return file_;
  }

 private:
  int64_t check_positive(std::string_view key, int64_t value) const {
    if (value <= 0 || value > (int64_t{1} << 31)) {
      throw UserError("{}: {} is {}, which makes no sense", file_.source(), name(key), value);
    }
    return value;
  }

  // Some per-layer quantities are arrays; here all layers must agree.
  std::optional<int64_t> uniform(std::string_view key) const {
    const GgufValue* value = file_.find(name(key));
    if (!value || value->type != GgufType::array) {
      return file_.get_int(name(key));
    }
    const std::vector<int32_t> all = value->ints();
    if (all.empty()) {
      throw UserError("{}: {} is an array without numbers", file_.source(), name(key));
    }
    if (std::any_of(all.begin(), all.end(), [&](int32_t v) { return v != all.front(); })) {
      throw UserError(
          "{}: {} differs between layers ({}), which is not supported",
          file_.source(),
          name(key),
          fmt::join(all.begin(), all.begin() + std::min<size_t>(all.size(), 8), ", "));
    }
    return all.front();
  }

  const GgufFile& file_;
  std::string architecture_;
};

const Architecture& find_architecture(const GgufFile& file) {
  const auto name = file.get_string("general.architecture");
  if (!name) {
    throw UserError("{}: the metadata key general.architecture is missing", file.source());
  }
  for (const Architecture& row : kArchitectures) {
    if (row.gguf == *name) {
      return row;
    }
  }
  if (*name == "clip") {
    throw UserError(
        "{}: is the image part (mmproj) of a model: name the file with the language model",
        file.source());
  }
  throw UserError(
      "{}: the architecture {} is not supported (supported: {})",
      file.source(),
      *name,
      supported_gguf_architectures());
}

const TensorView* find_tensor(const std::vector<TensorView>& tensors, std::string_view name) {
  const auto at = std::find_if(
      tensors.begin(), tensors.end(), [&](const TensorView& t) { return t.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

// Divisors of the frequencies that transformers' llama3 scaling amounts to
// (transformers, modeling_rope_utils: wavelengths up to original / high stay, over original / low
// are divided by factor, between them it is blended).
std::vector<double> llama3_factors(int64_t dims, double base, double factor, double original) {
  constexpr double kLow = 1.0;
  constexpr double kHigh = 4.0;
  std::vector<double> result;
  for (int64_t i = 0; i < dims; i += 2) {
    const double wavelength =
        2.0 * std::numbers::pi * std::pow(base, static_cast<double>(i) / static_cast<double>(dims));
    if (wavelength < original / kHigh) {
      result.push_back(1.0);
    } else if (wavelength > original / kLow) {
      result.push_back(factor);
    } else {
      const double smooth = (original / wavelength - kLow) / (kHigh - kLow);
      result.push_back(1.0 / ((1.0 - smooth) / factor + smooth));
    }
  }
  return result;
}

json::object rope_from_factors(const TensorView& tensor, int64_t rope_dims, double base) {
  std::vector<float> factors(static_cast<size_t>(tensor.size()));
  if (tensor.size() != rope_dims / 2) {
    throw UserError(
        "tensor {}: has {} factors, want {} for {} rotated dimensions",
        tensor.name,
        tensor.size(),
        rope_dims / 2,
        rope_dims);
  }
  decode_rows(tensor, 0, tensor.rows(), factors.data());
  for (const float factor : factors) {
    if (!std::isfinite(factor) || factor <= 0) {
      throw UserError("tensor {}: holds the factor {}, want numbers over 0", tensor.name, factor);
    }
  }
  const double largest = *std::max_element(factors.begin(), factors.end());
  for (const double original : {8192.0, 4096.0, 2048.0, 16384.0, 32768.0, 131072.0}) {
    const std::vector<double> want = llama3_factors(rope_dims, base, largest, original);
    bool equal = largest > 1.0;
    for (size_t i = 0; equal && i < want.size(); ++i) {
      equal = std::abs(factors[i] / want[i] - 1.0) < 1e-4;
    }
    if (equal) {
      return {
          {"rope_type", "llama3"},
          {"factor", shortest(largest)},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", static_cast<int64_t>(original)}};
    }
  }
  json::array list;
  for (const float factor : factors) {
    list.emplace_back(static_cast<double>(factor));
  }
  return {{"rope_type", "rope_freqs"}, {"factors", std::move(list)}};
}

// null when positions are not scaled.
json::value rope_scaling(
    const Keys& keys, const std::vector<TensorView>& tensors, int64_t rope_dims, double base) {
  if (const TensorView* factors = find_tensor(tensors, "rope_freqs.weight")) {
    const bool all_one = [&] {
      std::vector<float> values(static_cast<size_t>(factors->size()));
      decode_rows(*factors, 0, factors->rows(), values.data());
      return std::all_of(values.begin(), values.end(), [](float v) { return v == 1.0f; });
    }();
    if (!all_one) {
      return rope_from_factors(*factors, rope_dims, base);
    }
  }
  auto factor = keys.find_float("rope.scaling.factor");
  if (!factor) {
    factor = keys.find_float("rope.scale_linear");  // before 2023-11
  }
  const std::string_view type = keys.find_string("rope.scaling.type").value_or("linear");
  if (type == "none" || !factor || *factor == 0.0 || (*factor == 1.0 && type == "linear")) {
    return nullptr;
  }
  if (*factor < 0.0) {
    throw UserError(
        "{}: {} is {}, want a number over 0",
        keys.file().source(),
        keys.name("rope.scaling.factor"),
        *factor);
  }
  if (type == "linear") {
    return json::object{{"rope_type", "linear"}, {"factor", *factor}};
  }
  if (type != "yarn") {
    throw UserError(
        "{}: rope scaling of type {} is not supported (none, linear and yarn are)",
        keys.file().source(),
        type);
  }
  json::object yarn{
      {"rope_type", "yarn"},
      {"factor", *factor},
      {"original_max_position_embeddings", keys.positive("rope.scaling.original_context_length")}};
  // The key yarn_attn_factor is not used, as llama.cpp derives the attention factor from `factor`;
  // attn_factor multiplies it.
  if (const auto scale = keys.find_float("rope.scaling.attn_factor"); scale && *scale != 1.0) {
    yarn["attention_factor"] = *scale * (*factor > 1.0 ? 0.1 * std::log(*factor) + 1.0 : 1.0);
  }
  if (const auto fast = keys.find_float("rope.scaling.yarn_beta_fast")) {
    yarn["beta_fast"] = *fast;
  }
  if (const auto slow = keys.find_float("rope.scaling.yarn_beta_slow")) {
    yarn["beta_slow"] = *slow;
  }
  return yarn;
}

// Which layers see only a window. The pattern key is a number n (every n-th layer sees everything)
// or one boolean a layer.
void add_gemma_windows(json::object& config, const Keys& keys, int64_t layers) {
  const auto window = keys.find_int("attention.sliding_window");
  json::array types;
  std::vector<int32_t> sliding(static_cast<size_t>(layers), 0);
  if (window && *window > 0) {
    const GgufValue* pattern = keys.find("attention.sliding_window_pattern");
    if (pattern && pattern->type == GgufType::array) {
      sliding = pattern->ints();
      if (static_cast<int64_t>(sliding.size()) < layers) {
        throw UserError(
            "{}: {} has {} entries for {} layers",
            keys.file().source(),
            keys.name("attention.sliding_window_pattern"),
            sliding.size(),
            layers);
      }
    } else {
      const int64_t every = keys.positive_or("attention.sliding_window_pattern", 6);
      for (int64_t i = 0; i < layers; ++i) {
        sliding[static_cast<size_t>(i)] = i % every < every - 1;
      }
      config["sliding_window_pattern"] = every;
    }
    config["sliding_window"] = *window;
  }
  for (int64_t i = 0; i < layers; ++i) {
    types.emplace_back(sliding[static_cast<size_t>(i)] ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
}

void add_gemma(json::object& config, const Keys& keys, int64_t layers, int64_t head_dim) {
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["rope_local_base_freq"] = keys.find_float("rope.freq_base_swa").value_or(10000.0);
  // No key holds the scale of attention scores: it is 1/sqrt(head_dim) except in the 27B model (62
  // layers), where it is 1/sqrt(hidden_size / heads).
  const int64_t heads = config["num_attention_heads"].as_int64();
  config["query_pre_attn_scalar"] =
      layers == 62 ? config["hidden_size"].as_int64() / heads : head_dim;
  const auto softcap = keys.find_float("final_logit_softcapping");
  config["final_logit_softcapping"] =
      softcap && *softcap > 0 ? json::value(*softcap) : json::value(nullptr);
  config["attn_logit_softcapping"] = nullptr;
  add_gemma_windows(config, keys, layers);
}

void add_token_ids(json::object& config, const GgufFile& file) {
  for (const auto& [key, field] :
       {std::pair("tokenizer.ggml.bos_token_id", "bos_token_id"),
        std::pair("tokenizer.ggml.eos_token_id", "eos_token_id"),
        std::pair("tokenizer.ggml.padding_token_id", "pad_token_id")}) {
    if (const auto id = file.get_int(key)) {
      config[field] = *id;
    }
  }
}

// What most of the matrices are kept as; activations of the composed path follow it. Quantized
// files were made from 16-bit models; bfloat16 holds the range of all of them.
std::string_view activation_type(const std::vector<TensorView>& tensors) {
  bool all_f32 = true;
  bool all_f16 = true;
  for (const TensorView& t : tensors) {
    if (t.shape.size() > 1) {
      all_f32 = all_f32 && t.type == TensorType::f32;
      all_f16 = all_f16 && t.type == TensorType::f16;
    }
  }
  return all_f32 ? "float32" : (all_f16 ? "float16" : "bfloat16");
}

}  // namespace

std::string supported_gguf_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& row : kArchitectures) {
    names.push_back(row.gguf);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

json::object gguf_hf_config(const GgufFile& file, const std::vector<TensorView>& tensors) {
  const Architecture& architecture = find_architecture(file);
  const Keys keys(file, architecture.gguf);
  if (keys.find_int("expert_count").value_or(0) > 0) {
    throw UserError(
        "{}: a mixture-of-experts model, which is not supported for the architecture {}",
        file.source(),
        architecture.gguf);
  }
  const int64_t layers = keys.positive("block_count");
  const int64_t hidden = keys.positive("embedding_length");
  const int64_t heads = keys.positive("attention.head_count");
  const int64_t kv_heads = keys.positive_or("attention.head_count_kv", heads);
  const int64_t head_dim =
      keys.positive_or("attention.key_length", std::max<int64_t>(hidden / heads, 1));
  const int64_t value_dim = keys.positive_or("attention.value_length", head_dim);
  const int64_t rope_dims = keys.positive_or("rope.dimension_count", head_dim);
  if (heads % kv_heads != 0 || layers > 100'000) {
    throw UserError(
        "{}: {} layers, {} attention heads and {} key-value heads do not go together",
        file.source(),
        layers,
        heads,
        kv_heads);
  }
  if (value_dim != head_dim) {
    throw UserError(
        "{}: heads with {} key and {} value dimensions are not supported",
        file.source(),
        head_dim,
        value_dim);
  }
  if (rope_dims > head_dim || rope_dims % 2 != 0 ||
      (architecture.gguf == "llama" && rope_dims != head_dim)) {
    throw UserError(
        "{}: {} is {}, which does not go with heads of {} dimensions",
        file.source(),
        keys.name("rope.dimension_count"),
        rope_dims,
        head_dim);
  }
  const TensorView* embedding = find_tensor(tensors, "token_embd.weight");
  const auto vocabulary = file.find("tokenizer.ggml.tokens");

  json::object config;
  config["model_type"] = architecture.model_type;
  config["architectures"] = json::array{architecture.class_name};
  config["hidden_size"] = hidden;
  config["num_hidden_layers"] = layers;
  config["intermediate_size"] = keys.positive("feed_forward_length");
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = kv_heads;
  config["head_dim"] = head_dim;
  config["vocab_size"] = embedding ? embedding->rows()
                         : vocabulary && vocabulary->type == GgufType::array
                             ? static_cast<int64_t>(vocabulary->count)
                             : keys.positive("vocab_size");
  config["max_position_embeddings"] = keys.positive("context_length");
  config["rms_norm_eps"] = keys.find_float("attention.layer_norm_rms_epsilon").value_or(1e-6);
  config["tie_word_embeddings"] = find_tensor(tensors, "output.weight") == nullptr;
  config["hidden_act"] = "silu";
  config["attention_bias"] = find_tensor(tensors, "blk.0.attn_q.bias") != nullptr ||
                             find_tensor(tensors, "blk.0.attn_qkv.bias") != nullptr;
  config["mlp_bias"] = find_tensor(tensors, "blk.0.ffn_up.bias") != nullptr;
  const double base = keys.find_float("rope.freq_base").value_or(10000.0);
  if (!(base > 0)) {
    throw UserError(
        "{}: {} is {}, want a number over 0", file.source(), keys.name("rope.freq_base"), base);
  }
  config["rope_theta"] = base;
  if (rope_dims != head_dim) {
    config["partial_rotary_factor"] =
        static_cast<double>(rope_dims) / static_cast<double>(head_dim);
  }
  config["rope_scaling"] = rope_scaling(keys, tensors, rope_dims, base);
  config["torch_dtype"] = activation_type(tensors);
  if (architecture.gguf == "gemma3") {
    config.erase("hidden_act");
    add_gemma(config, keys, layers, head_dim);
  }
  add_token_ids(config, file);
  return config;
}

}  // namespace quince
