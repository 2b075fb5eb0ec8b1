// A model is one architecture with its weights: it turns token rows into logits and says what cache
// a sequence needs. It belongs to the engine thread; so do its caches.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <mlx/array.h>

#include "cache/cache.h"
#include "nn/batch.h"
#include "nn/decoder_spec.h"
#include "quant/options.h"

namespace quince {

struct ModelFiles;

struct ModelInfo {
  std::string model_type;  // "llama"
  // Of config, vocabulary and weights: a changed file has another one (see
  // weights/model_identity.h).
  std::string identity;
  int layers = 0;
  int hidden_size = 0;
  int vocab_size = 0;      // rows of the output head
  int context_length = 0;  // trained, from the config
  int64_t parameters = 0;
  size_t weight_bytes = 0;         // in memory
  bool batch_invariant = false;    // see LoadOptions
  std::vector<std::string> notes;  // lines for the user, e.g. formats that could not be kept
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual std::unique_ptr<Cache> make_cache(const CacheOptions& options) const = 0;
  // Appends the batch's tokens to the caches and returns f32 logits [logit_rows.size(),
  // vocab_size], or states (see Batch). Lazy: the caller evaluates. Positions beyond what a cache
  // can hold are a UserError.
  virtual mlx::core::array forward(const Batch& batch) = 0;
};

// Finds the factory by config["model_type"], builds every layer, checks that all tensors were used.
std::unique_ptr<Model> load_model(ModelFiles files, const LoadOptions& options);

// Whether load_model would take these files, told without reading a weight: throws the UserError
// that it would throw, else returns the stack that it would build.
DecoderSpec check_model(const ModelFiles& files);

}  // namespace quince
