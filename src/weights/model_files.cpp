#include "weights/model_files.h"

#include "base/error.h"
#include "weights/gguf.h"
#include "weights/hub.h"

namespace quince {

namespace fs = std::filesystem;

ModelFiles open_model(const std::string& model) {
  const fs::path path = resolve_model(model);
  if (!fs::is_directory(path)) {
    if (path.extension() == ".safetensors" || path.filename() == "config.json") {
      throw UserError(
          "{}: name the directory it lies in: the model is that together with the files beside it",
          path.string());
    }
    return open_gguf_model(path);
  }
  // A folder of GGUF files: the only model in it, or the user has to choose.
  if (const auto files = list_files(path); prefers_gguf(files)) {
    return open_gguf_model(path / choose_gguf(files, "", path.string()));
  }
  return open_model_directory(path);
}

}  // namespace quince
