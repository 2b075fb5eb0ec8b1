#include "weights/model_files.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/mapped_file.h"
#include "weights/gguf.h"
#include "weights/hub.h"
#include "weights/model_names.h"

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
    const std::vector<std::string> models = gguf_models(files);
    if (models.size() > 1) {
      constexpr size_t kShown = 12;
      throw UserError(
          "{}: {} GGUF files fit: {}{}; give the path of one of them",
          path.string(),
          models.size(),
          fmt::join(models.begin(), models.begin() + std::min(kShown, models.size()), ", "),
          models.size() > kShown ? ", ..." : "");
    }
    return open_gguf_model(path / choose_gguf(files, "", path.string()));
  }
  return open_model_directory(path);
}

void read_tensors(ModelFiles& files) {
  std::map<const MappedFile*, std::shared_ptr<const MappedFile>> read;
  for (TensorView& tensor : files.tensors) {
    if (!tensor.file) {
      continue;
    }
    std::shared_ptr<const MappedFile>& fresh = read[tensor.file.get()];
    if (!fresh) {
      fresh = MappedFile::read(tensor.file->path());
    }
    const auto at = static_cast<size_t>(tensor.bytes.data() - tensor.file->bytes().data());
    if (fresh->bytes().size() != tensor.file->bytes().size()) {
      throw UserError("{}: the file is being changed", tensor.file->path().string());
    }
    tensor.bytes = fresh->bytes().subspan(at, tensor.bytes.size());
  }
  for (TensorView& tensor : files.tensors) {
    if (tensor.file) {
      tensor.file = read.at(tensor.file.get());
    }
  }
}

}  // namespace quince
