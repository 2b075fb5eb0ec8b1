// Model directories in Hugging Face's and MLX's layout.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "weights/json_file.h"
#include "weights/model_files.h"
#include "weights/safetensors.h"
#include "weights/tokenizer_files.h"

namespace quince {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr size_t kMaxConfig = 64u << 20;

// Keys of the outer object that concern the language model too.
constexpr std::array<std::string_view, 9> kOuterKeys{
    "quantization",
    "quantization_config",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "tie_word_embeddings",
    "torch_dtype",
    "dtype",
    "architectures"};

// MLX's per-layer overrides are keyed by the module path of the file they were written for; here
// they get the spelling that the tensors get.
json::object renamed_overrides(const json::object& quantization) {
  json::object result;
  for (const auto& [key, value] : quantization) {
    if (value.is_object() || value.is_bool()) {
      if (const auto name = language_model_name(key)) {
        result[*name] = value;
      }
    } else {
      result[key] = value;
    }
  }
  return result;
}

// MLX writes {"group_size", "bits", ...} under "quantization" and once more under
// "quantization_config"; everybody else's quantization_config has a quant_method.
void settle_quantization(json::object& config, std::string_view source) {
  const json::value* other = config.if_contains("quantization_config");
  const json::value* own = config.if_contains("quantization");
  if (own && !own->is_object() && !own->is_null()) {
    throw UserError("{}: \"quantization\" is not an object", source);
  }
  if (own && own->is_object()) {
    return;
  }
  if (!other || !other->is_object()) {
    return;
  }
  const json::object& object = other->get_object();
  if (const auto method = json_string(object, "quant_method", source)) {
    throw UserError(
        "{}: weights quantized by the method {} are not supported: get the 16-bit, the MLX or a "
        "GGUF "
        "version of the model",
        source,
        *method);
  }
  if (object.contains("bits") && object.contains("group_size")) {
    config["quantization"] = object;
  }
}

bool has_tensor_under(const std::vector<TensorView>& tensors, std::string_view path) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const TensorView& t) {
    return t.name.size() > path.size() && t.name.starts_with(path) && t.name[path.size()] == '.';
  });
}

void note_idle_overrides(const ModelFiles& files, std::vector<std::string>& notes) {
  const json::value* quantization = files.config.if_contains("quantization");
  if (!quantization || !quantization->is_object()) {
    return;
  }
  for (const auto& [key, value] : quantization->get_object()) {
    if ((value.is_object() || value.is_bool()) && !has_tensor_under(files.tensors, key)) {
      notes.push_back(fmt::format(
          "config.json: the quantization setting for {} matches no tensor", std::string_view(key)));
    }
  }
}

void take_language_tensors(ModelFiles& files) {
  std::vector<TensorView> kept;
  size_t dropped = 0;
  for (TensorView& tensor : files.tensors) {
    if (auto name = language_model_name(tensor.name)) {
      tensor.name = std::move(*name);
      kept.push_back(std::move(tensor));
    } else {
      ++dropped;
    }
  }
  files.tensors = std::move(kept);
  if (dropped) {
    files.notes.push_back(
        fmt::format("{} tensors of the image or audio part are left out: text only", dropped));
  }
}

}  // namespace

std::optional<std::string> language_model_name(std::string_view name) {
  constexpr std::array<std::string_view, 12> kOthers{
      "vision_tower.",
      "vision_model.",
      "visual.",
      "multi_modal_projector.",
      "audio_tower.",
      "embed_vision.",
      "embed_audio.",
      "model.vision_tower.",
      "model.vision_model.",
      "model.visual.",
      "model.multi_modal_projector.",
      "model.audio_tower."};
  for (const std::string_view prefix : kOthers) {
    if (name.starts_with(prefix)) {
      return std::nullopt;
    }
  }
  // transformers up to 4.51 and mlx-vlm: language_model.model.*; later: model.language_model.*.
  if (name.starts_with("language_model.")) {
    return std::string(name.substr(std::string_view("language_model.").size()));
  }
  if (name.starts_with("model.language_model.")) {
    return "model." + std::string(name.substr(std::string_view("model.language_model.").size()));
  }
  return std::string(name);
}

DirectoryConfig parse_model_config(std::string_view text, std::string_view source) {
  DirectoryConfig result;
  result.config = parse_json_object(text, source);
  if (json::value* inner = result.config.if_contains("text_config"); inner && inner->is_object()) {
    json::object merged = inner->get_object();
    for (const std::string_view key : kOuterKeys) {
      const json::value* outer = result.config.if_contains(key);
      if (outer && !outer->is_null() && (!merged.contains(key) || merged.at(key).is_null())) {
        merged[key] = *outer;
      }
    }
    if (!merged.contains("model_type")) {
      // Old gemma3 files leave it to the reader.
      const auto outer = json_string(result.config, "model_type", source);
      merged["model_type"] = outer.value_or("") + "_text";
    }
    result.config = std::move(merged);
    result.nested = true;
  }
  const auto type = json_string(result.config, "model_type", source);
  if (!type || type->empty()) {
    throw UserError("{}: \"model_type\" is missing", source);
  }
  settle_quantization(result.config, source);
  if (json::value* quantization = result.config.if_contains("quantization");
      quantization && quantization->is_object()) {
    *quantization = renamed_overrides(quantization->get_object());
  }
  return result;
}

ModelFiles open_model_directory(const fs::path& directory) {
  ModelFiles files;
  files.path = directory;
  files.container = "safetensors";
  const fs::path config_path = directory / "config.json";
  const auto text = read_text_file_if_any(config_path, kMaxConfig);
  if (!text) {
    throw UserError(
        "{}: is no model: it has neither a config.json nor a GGUF file", directory.string());
  }
  DirectoryConfig parsed = parse_model_config(*text, config_path.string());
  files.config = std::move(parsed.config);
  const fs::path generation_path = directory / "generation_config.json";
  if (const auto generation = read_text_file_if_any(generation_path, kMaxConfig)) {
    files.generation_config = parse_json_object(*generation, generation_path.string());
  }
  SafetensorsContent content = open_safetensors_directory(directory);
  files.tensors = std::move(content.tensors);
  files.metadata = std::move(content.metadata);
  if (parsed.nested) {
    take_language_tensors(files);
  }
  files.tokenizer =
      read_tokenizer_files(directory, files.config, files.generation_config, files.notes);
  files.chat_templates = read_chat_templates(directory, files.tokenizer.tokenizer_config);
  note_idle_overrides(files, files.notes);
  return files;
}

}  // namespace quince
