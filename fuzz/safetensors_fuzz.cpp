// Any bytes as a safetensors file.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "weights/safetensors.h"

using namespace quince;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<uint8_t> bytes(data, data + size);
  try {
    const auto content = parse_safetensors(std::as_bytes(std::span(bytes)), "input", nullptr);
    for (const TensorView& tensor : content.tensors) {
      if (tensor.size() > 0 && tensor.size() <= 4096) {
        std::vector<float> values(static_cast<size_t>(tensor.size()));
        decode_rows(tensor, 0, tensor.rows(), values.data());
      }
    }
  } catch (const UserError&) {
  }
  return 0;
}
