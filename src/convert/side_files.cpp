#include "convert/side_files.h"

#include "base/error.h"
#include "base/json_text.h"
#include "convert/tokenizer_json.h"

namespace quince {

namespace json = boost::json;

namespace {

const char* torch_name(TensorType type) {
  return type == TensorType::f32 ? "float32" : type == TensorType::f16 ? "float16" : "bfloat16";
}

// GGUF files may hold rotary factors that follow no formula; mlx-lm has no field for them.
void check_rope(const ModelFiles& files) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json::value* value = files.config.if_contains(key);
    if (value == nullptr || !value->is_object()) {
      continue;
    }
    const json::value* type = value->get_object().if_contains("rope_type");
    if (type != nullptr && type->is_string() && type->get_string() == "rope_freqs") {
      throw UserError(
          "{}: its rotary factors (rope_freqs.weight) follow no known formula, so a config.json "
          "cannot "
          "express them; run the GGUF file itself",
          files.path.string());
    }
  }
}

json::object tokenizer_config(const ModelFiles& files) {
  json::object config = files.tokenizer.tokenizer_config;
  if (!config.contains("tokenizer_class")) {
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
  }
  // transformers would tidy up spaces before punctuation, which changes the text.
  if (!config.contains("clean_up_tokenization_spaces")) {
    config["clean_up_tokenization_spaces"] = false;
  }
  const json::value* context = files.config.if_contains("max_position_embeddings");
  if (!config.contains("model_max_length") && context != nullptr) {
    config["model_max_length"] = *context;
  }
  const auto& templates = files.chat_templates;
  if (templates.size() == 1) {
    config["chat_template"] = templates.front().text;
  } else if (!templates.empty()) {
    json::array list;
    for (const ChatTemplateSource& source : templates) {
      list.push_back({{"name", source.name}, {"template", source.text}});
    }
    config["chat_template"] = std::move(list);
  }
  return config;
}

json::object generation_config(const ModelFiles& files) {
  json::object config = files.generation_config;
  const auto& ends = files.tokenizer.eos_token_ids;
  if (!ends.empty()) {
    config["eos_token_id"] = ends.size() == 1 ? json::value(ends.front()) : json::value_from(ends);
  }
  if (files.tokenizer.bos_token_id && !config.contains("bos_token_id")) {
    config["bos_token_id"] = *files.tokenizer.bos_token_id;
  }
  return config;
}

}  // namespace

json::object mlx_config(const ModelFiles& files, const ConvertPlan& plan) {
  check_rope(files);
  json::object config = files.config;
  config.erase("quantization");
  config.erase("quantization_config");
  if (!plan.quantization.empty()) {
    config["quantization"] = plan.quantization;
    config["quantization_config"] = plan.quantization;
  }
  config[config.contains("dtype") && !config.contains("torch_dtype") ? "dtype" : "torch_dtype"] =
      torch_name(plan.dtype);
  // mlx-lm stops at these; a GGUF file's further turn ends are among them.
  const auto& ends = files.tokenizer.eos_token_ids;
  if (!ends.empty()) {
    config["eos_token_id"] = ends.size() == 1 ? json::value(ends.front()) : json::value_from(ends);
  }
  return config;
}

void write_side_files(const ModelFiles& files, const ConvertPlan& plan, const AddText& add) {
  add("config.json", pretty_json(mlx_config(files, plan)));
  json::object generation = generation_config(files);
  if (!generation.empty()) {
    add("generation_config.json", pretty_json(generation));
  }
  const TokenizerSource& tokenizer = files.tokenizer;
  if (!tokenizer.tokenizer_json.empty()) {
    add("tokenizer.json", tokenizer.tokenizer_json);
  } else if (tokenizer.vocabulary != nullptr) {
    add("tokenizer.json", tokenizer_json(*tokenizer.vocabulary, files.path.string()));
  } else {
    return;  // a model without a tokenizer stays one
  }
  add("tokenizer_config.json", pretty_json(tokenizer_config(files)));
  if (files.chat_templates.size() == 1) {
    add("chat_template.jinja", files.chat_templates.front().text);
  }
}

}  // namespace quince
