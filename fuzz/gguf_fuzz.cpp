// Any bytes as a GGUF file: parsed, shown, turned into a config, names, a vocabulary, numbers.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "weights/gguf.h"
#include "weights/gguf_config.h"
#include "weights/gguf_tokenizer.h"
#include "weights/tokenizer_files.h"

using namespace quince;

namespace {

// A view must lie inside the input, and its rows must decode.
void decode_some(const TensorView& tensor) {
  if (tensor.columns() > 4096 || tensor.rows() == 0) {
    return;
  }
  std::vector<float> row(static_cast<size_t>(tensor.columns()));
  decode_rows(tensor, 0, 1, row.data());
  decode_rows(tensor, tensor.rows() - 1, 1, row.data());
}

void use_metadata(const GgufFile& file) {
  for (const auto& [key, value] : file.metadata()) {
    value.to_json();
    value.strings();
    value.numbers();
    value.ints();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of exactly this size, so that reading past its end is seen.
  const std::vector<uint8_t> bytes(data, data + size);
  try {
    GgufFile file = GgufFile::parse(std::as_bytes(std::span(bytes)), "input", nullptr);
    use_metadata(file);
    for (const TensorView& tensor : file.tensors()) {
      decode_some(tensor);
    }
    try {
      std::vector<std::string> notes;
      gguf_tokenizer_source(file, notes);
    } catch (const UserError&) {
    }
    const auto config = gguf_hf_config(file, file.tensors());
    for (const TensorView& tensor :
         gguf_hf_tensors(*file.get_string("general.architecture"), config, file.tensors())) {
      decode_some(tensor);
    }
  } catch (const UserError&) {
  }
  return 0;
}
