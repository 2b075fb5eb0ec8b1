// What tells one model's files from another's without reading them: a hash over the configuration,
// the vocabulary, the name, type and shape of every tensor, and three samples of 64 bytes from
// each, at its begin, middle and end. Another checkpoint, quantization or fine-tuning has another
// one; a file that was copied, renamed or downloaded again has the same. A change of a few bytes in
// the middle of a matrix, which nobody makes, can pass. Any thread; touches three pages of memory a
// tensor.
#pragma once

#include <string>

#include "weights/model_files.h"

namespace quince {

std::string model_identity(const ModelFiles& files);  // 32 hexadecimal digits

}  // namespace quince
