#include "nn/decoder.h"

namespace quince {

std::unique_ptr<Decoder> make_decoder(
    const DecoderSpec& spec, Weights& weights, const LoadOptions& options) {
  switch (options.kernels) {
    case KernelSet::mlx:
      return make_composed_decoder(spec, weights, options);
    case KernelSet::native:
      return make_native_decoder(spec, weights, options);
  }
  throw std::logic_error("[make_decoder] unknown kernel set");
}

}  // namespace quince
