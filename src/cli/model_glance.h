// Opens a model just to look at it: also files whose architecture, quantization or tokenizer Quince
// does not know, of which it shows what can be read.
#pragma once

#include <optional>
#include <string>

#include "weights/model_files.h"

namespace quince::cli {

struct ModelGlance {
  ModelFiles files;
  // What open_model() said, when it refused; files then hold what could be read all the same:
  // tensors under the file's own names, sizes of the model as far as metadata tell them.
  std::optional<std::string> refused;
};

// Throws UserError for files that are broken or no models at all.
ModelGlance glance(const std::string& model);

}  // namespace quince::cli
