#include <array>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "models/architectures.h"
#include "models/common.h"
#include "models/model.h"
#include "nn/decoder.h"
#include "nn/decoder_tensors.h"
#include "weights/model_identity.h"

namespace quince {
namespace {

namespace json = boost::json;

constexpr std::array kArchitectures{
    Architecture{"gemma3", make_gemma3},
    Architecture{"gemma3_text", make_gemma3},
    Architecture{"llama", make_llama},
    Architecture{"mistral", make_llama},
    Architecture{"qwen2", make_qwen2},
    Architecture{"qwen3", make_qwen3},
};

const Architecture& find_architecture(const Config& config) {
  const std::string type = config.text("model_type", "");
  std::vector<std::string_view> known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.model_type == type) {
      return architecture;
    }
    known.push_back(architecture.model_type);
  }
  config.refuse("model_type", fmt::format("one of {}", fmt::join(known, ", ")));
}

// MLX writes the same object under both names; other tools' methods are not MLX's packing.
json::object read_quantization(const Config& config) {
  if (const json::object* quantization = config.maybe_object("quantization")) {
    return *quantization;
  }
  const json::object* other = config.maybe_object("quantization_config");
  if (!other) {
    return {};
  }
  if (const json::value* method = other->if_contains("quant_method")) {
    throw UserError(
        "{}: quant_method {} is not supported, want a plain, MLX or GGUF checkpoint",
        config.source(),
        json::serialize(*method));
  }
  return *other;
}

// What the config and the tensors' names tell, before any layer is built.
struct Prepared {
  const Architecture& architecture;
  Weights weights;
  DecoderSpec spec;
};

Prepared prepare(
    const json::object& whole, std::vector<TensorView> tensors, const std::string& source) {
  const Config outer(whole, source);
  const Architecture& architecture = find_architecture(outer);
  // A multimodal config holds the language model's in an object of its own.
  const json::object* text = outer.maybe_object("text_config");
  const Config config(text ? *text : whole, source);

  Weights weights(std::move(tensors), source, read_quantization(outer));
  repair_names(weights);
  DecoderSpec spec = architecture.make(config, weights);
  if (spec.tied_embeddings) {
    drop_spare_head(weights);
  }
  return {architecture, std::move(weights), std::move(spec)};
}

int64_t count_parameters(const DecoderSpec& spec) {
  const auto hidden = static_cast<int64_t>(spec.hidden_size);
  const int64_t q = static_cast<int64_t>(spec.heads) * spec.head_dim;
  const int64_t kv = static_cast<int64_t>(spec.kv_heads) * spec.head_dim;
  const int64_t mlp = spec.intermediate_size;
  int64_t layer = hidden * (2 * q + 2 * kv + 3 * mlp) + hidden * (spec.sandwich_norms ? 4 : 2);
  layer += (spec.qkv_bias ? q + 2 * kv : 0) + (spec.o_bias ? hidden : 0);
  layer += (spec.mlp_bias ? 2 * mlp + hidden : 0) + (spec.qk_norm ? 2 * spec.head_dim : 0);
  const int64_t tables = spec.tied_embeddings ? 1 : 2;
  return layer * static_cast<int64_t>(spec.layers.size()) + tables * spec.vocab_size * hidden +
         hidden;
}

class DecoderModel : public Model {
 public:
  DecoderModel(ModelInfo info, std::unique_ptr<Decoder> decoder)
      : info_(std::move(info)), decoder_(std::move(decoder)) {}
  const ModelInfo& info() const override {
    return info_;
  }
  std::unique_ptr<Cache> make_cache(const CacheOptions& options) const override {
    return decoder_->make_cache(options);
  }
  mlx::core::array forward(const Batch& batch) override {
    return decoder_->forward(batch);
  }

 private:
  ModelInfo info_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace

std::span<const Architecture> architectures() {
  return kArchitectures;
}

std::unique_ptr<Model> load_model(ModelFiles files, const LoadOptions& options) {
  std::string identity = model_identity(files);
  files.tokenizer = {};  // megabytes, in some models
  Prepared model = prepare(files.config, std::move(files.tensors), files.path.string());
  std::unique_ptr<Decoder> decoder = make_decoder(model.spec, model.weights, options);
  model.weights.check_all_taken();

  ModelInfo info;
  info.identity = std::move(identity);
  if (options.dtype) {  // computes other keys and values
    info.identity += fmt::format(
        " {}",
        mlx::core::size_of(*options.dtype) == 4 ? "f32"
        : *options.dtype == mlx::core::float16  ? "f16"
                                                : "bf16");
  }
  info.batch_invariant = options.batch_invariant && options.kernels == KernelSet::native;
  if (info.batch_invariant) {
    info.identity += " batch-invariant";
  }
  info.model_type = model.architecture.model_type;
  info.layers = static_cast<int>(model.spec.layers.size());
  info.hidden_size = model.spec.hidden_size;
  info.vocab_size = model.spec.vocab_size;
  info.context_length = model.spec.context_length;
  info.parameters = count_parameters(model.spec);
  info.weight_bytes = decoder->weight_bytes();
  info.notes = decoder->notes();
  return std::make_unique<DecoderModel>(std::move(info), std::move(decoder));
}

DecoderSpec check_model(const ModelFiles& files) {
  Prepared model = prepare(files.config, files.tensors, files.path.string());
  take_decoder_tensors(model.spec, model.weights);
  model.weights.check_all_taken();
  return std::move(model.spec);
}

}  // namespace quince
