#include "weights/tokenizer_files.h"

#include <algorithm>

#include "base/error.h"
#include "weights/json_file.h"
#include "weights/turn_ends.h"

namespace quince {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr size_t kMaxTokenizer = 512u << 20;
constexpr size_t kMaxConfig = 64u << 20;
constexpr size_t kMaxTemplate = 4u << 20;

json::object read_object_if_any(const fs::path& path) {
  const auto text = read_text_file_if_any(path, kMaxConfig);
  return text ? parse_json_object(*text, path.string()) : json::object{};
}

// The tokenizer's file is given as tokenizer.json; other forms are refused with what to do.
std::string read_tokenizer_json(const fs::path& directory, std::vector<std::string>& notes) {
  if (auto text = read_text_file_if_any(directory / "tokenizer.json", kMaxTokenizer)) {
    return std::move(*text);
  }
  for (const char* name : {"tokenizer.model", "vocab.json", "tekken.json", "vocab.txt"}) {
    if (fs::exists(directory / name)) {
      throw UserError(
          "{}: has {} but no tokenizer.json. Make one with Python's transformers: "
          "AutoTokenizer.from_pretrained(\"{}\").save_pretrained(\"{}\")",
          directory.string(),
          name,
          directory.string(),
          directory.string());
    }
  }
  notes.push_back(fmt::format("{}: has no tokenizer", directory.string()));
  return "";
}

std::optional<int32_t> checked_id(const json::value* value, std::string_view source) {
  std::vector<int32_t> ids;
  add_token_ids(ids, value, source);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

}  // namespace

void add_token_ids(std::vector<int32_t>& ids, const json::value* value, std::string_view source) {
  if (!value || value->is_null()) {
    return;
  }
  if (value->is_array()) {
    for (const json::value& element : value->get_array()) {
      if (element.is_array()) {
        throw UserError("{}: a list of token ids holds a list", source);
      }
      add_token_ids(ids, &element, source);
    }
    return;
  }
  if (!value->is_int64() || value->get_int64() > INT32_MAX) {
    throw UserError(
        "{}: a token id is {}, want a whole number", source, json::serialize(*value).substr(0, 60));
  }
  // Some configs write -1 for "none".
  const int64_t id = value->get_int64();
  if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) {
    ids.push_back(static_cast<int32_t>(id));
  }
}

std::optional<std::string> token_text(const json::value* value) {
  if (value && value->is_object()) {
    value = value->get_object().if_contains("content");
  }
  if (!value || !value->is_string()) {
    return std::nullopt;
  }
  return std::string(value->get_string());
}

TokenizerSource read_tokenizer_files(
    const fs::path& directory,
    const json::object& config,
    const json::object& generation_config,
    std::vector<std::string>& notes) {
  TokenizerSource source;
  source.tokenizer_json = read_tokenizer_json(directory, notes);
  source.tokenizer_config = read_object_if_any(directory / "tokenizer_config.json");
  const bool has_config = !source.tokenizer_config.empty();
  for (auto& [key, value] : read_object_if_any(directory / "special_tokens_map.json")) {
    source.tokenizer_config.emplace(key, value);  // tokenizer_config wins where both speak
  }

  const auto bos = token_text(source.tokenizer_config.if_contains("bos_token"));
  const auto eos = token_text(source.tokenizer_config.if_contains("eos_token"));
  std::set<std::string, std::less<>> wanted(kTurnEnds.begin(), kTurnEnds.end());
  for (const auto& text : {bos, eos}) {
    if (text) {
      wanted.insert(*text);
    }
  }
  TokenizerFacts facts;
  if (!source.tokenizer_json.empty()) {
    facts =
        scan_tokenizer_json(source.tokenizer_json, wanted, (directory / "tokenizer.json").string());
  }

  const std::string config_path = (directory / "config.json").string();
  const std::string generation_path = (directory / "generation_config.json").string();
  add_token_ids(
      source.eos_token_ids, generation_config.if_contains("eos_token_id"), generation_path);
  add_token_ids(source.eos_token_ids, config.if_contains("eos_token_id"), config_path);
  if (const auto at = eos ? facts.ids.find(*eos) : facts.ids.end(); at != facts.ids.end()) {
    const json::value id = at->second;
    add_token_ids(source.eos_token_ids, &id, "tokenizer.json");
  }
  for (const std::string& text : facts.special) {
    if (is_turn_end(text)) {
      const json::value id = facts.ids.at(text);
      add_token_ids(source.eos_token_ids, &id, "tokenizer.json");
    }
  }

  if (bos) {
    if (const auto at = facts.ids.find(*bos); at != facts.ids.end()) {
      source.bos_token_id = at->second;
    }
  } else if (!has_config) {
    // A tokenizer_config that names no BOS means that there is none, whatever config.json says.
    source.bos_token_id = checked_id(config.if_contains("bos_token_id"), config_path);
  }
  const json::value* add_bos = source.tokenizer_config.if_contains("add_bos_token");
  if (add_bos && add_bos->is_bool()) {
    source.add_bos = add_bos->get_bool() && source.bos_token_id;
  } else {
    source.add_bos = bos && facts.post_processor_tokens.count(*bos);
  }
  return source;
}

std::vector<ChatTemplateSource> read_chat_templates(
    const fs::path& directory, const json::object& tokenizer_config) {
  std::vector<ChatTemplateSource> templates;
  const auto put = [&](std::string name, std::string text) {
    const auto at = std::find_if(
        templates.begin(), templates.end(), [&](const auto& t) { return t.name == name; });
    if (at != templates.end()) {
      at->text = std::move(text);
    } else {
      templates.push_back({std::move(name), std::move(text)});
    }
  };
  // One template, or a list of {"name", "template"}.
  const auto put_value = [&](const json::value* value, const std::string& source) {
    if (!value || value->is_null()) {
      return;
    }
    if (value->is_string()) {
      put("default", std::string(value->get_string()));
      return;
    }
    if (!value->is_array()) {
      throw UserError("{}: chat_template is neither a text nor a list", source);
    }
    for (const json::value& entry : value->get_array()) {
      const json::object* object = entry.if_object();
      const auto name = object ? json_string(*object, "name", source) : std::nullopt;
      const auto text = object ? json_string(*object, "template", source) : std::nullopt;
      if (!name || !text) {
        throw UserError("{}: an entry of chat_template has no \"name\" or \"template\"", source);
      }
      put(*name, *text);
    }
  };
  put_value(
      tokenizer_config.if_contains("chat_template"),
      (directory / "tokenizer_config.json").string());
  if (const auto text = read_text_file_if_any(directory / "chat_template.json", kMaxTemplate)) {
    const std::string source = (directory / "chat_template.json").string();
    const json::object object = parse_json_object(*text, source);
    put_value(object.if_contains("chat_template"), source);
  }
  if (auto text = read_text_file_if_any(directory / "chat_template.jinja", kMaxTemplate)) {
    put("default", std::move(*text));
  }
  const fs::path more = directory / "additional_chat_templates";
  if (fs::is_directory(more)) {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(more)) {
      if (entry.path().extension() == ".jinja") {
        paths.push_back(entry.path());
      }
    }
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) {
      put(path.stem().string(), read_text_file(path, kMaxTemplate));
    }
  }
  return templates;
}

}  // namespace quince
