#include "server/openai/prompts.h"

#include <algorithm>

#include "server/errors.h"

namespace quince::server {

namespace json = boost::json;

namespace {

std::vector<Token> ids_of(
    const json::array& list, const std::string& name, const ServedModel& model) {
  const int vocabulary = model.engine->info().vocab_size;
  std::vector<Token> ids;
  for (const json::value& value : list) {
    if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() >= vocabulary) {
      throw bad_field(
          name, "{} holds {}, want token ids from 0 to {}", name, shown(value), vocabulary - 1);
    }
    ids.push_back(static_cast<Token>(value.get_int64()));
  }
  return ids;
}

}  // namespace

std::vector<std::vector<Token>> parse_prompts(
    Fields& fields, std::string_view name, const ServedModel& model, size_t most) {
  const std::string called(fields.called(name));
  const json::value* value = fields.find(name);
  if (value == nullptr) {
    throw bad_field(called, "{} is missing", called);
  }
  std::vector<std::vector<Token>> prompts;
  const bool cut = fields.find("truncate_prompt_tokens") != nullptr;
  size_t bytes = 0;  // of texts that may have any length
  const auto add = [&](const json::value& prompt) {
    if (const json::string* text = prompt.if_string()) {
      if (cut) {
        bytes += text->size();
        refuse_long_text(bytes, called);
      } else {
        refuse_too_long(text->size(), model, called);
      }
      prompts.push_back(raw_prompt(model.text, *text));
    } else if (const json::array* list = prompt.if_array()) {
      prompts.push_back(ids_of(*list, called, model));
    } else {
      throw bad_field(called, "{} is {}, want a text or token ids", called, shown(prompt));
    }
  };
  const json::array* list = value->if_array();
  const bool is_list = list != nullptr && !list->empty() && !list->front().is_number();
  if (is_list) {
    if (list->size() > most) {
      throw bad_field(called, "{} holds {} prompts, at most {}", called, list->size(), most);
    }
    std::for_each(list->begin(), list->end(), add);
  } else {
    add(*value);
  }
  for (std::vector<Token>& prompt : prompts) {
    if (prompt.empty() && model.text.bos) {
      prompt.push_back(*model.text.bos);
    }
    if (prompt.empty()) {
      throw bad_field(
          called, "{} is empty, and {} has no token that begins a text", called, model.id);
    }
  }
  return prompts;
}

}  // namespace quince::server
