#include "cli/cached_prompt.h"

#include <algorithm>

#include "base/error.h"
#include "cli/conversation.h"

namespace quince::cli {

namespace {

// A rendered conversation, cut before and behind what the user says.
struct Cut {
  std::vector<Token> tokens;  // of all
  std::string before;
  std::string behind;
};

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

Cut cut(
    const TextSide& side,
    const std::optional<std::string>& system,
    const std::string& text,
    bool generation,
    const boost::json::object& values) {
  RenderOptions render;
  render.add_generation_prompt = generation;
  render.extra = values;
  const boost::json::array messages = Conversation{system, {{"user", text}}}.to_json();
  const std::string all = side.chat_template->render(messages, render);
  std::string said = text;
  size_t at = all.rfind(said);
  if (at == std::string::npos) {  // some templates trim
    said = trimmed(text);
    at = all.rfind(said);
  }
  if (said.empty() || at == std::string::npos) {
    throw UserError(
        "the chat template {} does not show the text as it is given: use --raw",
        side.template_name);
  }
  return {
      side.chat_template->encode(side.tokenizer, messages, render),
      all.substr(0, at),
      all.substr(at + said.size())};
}

}  // namespace

std::vector<Token> prompt_to_cache(
    const TextSide& side,
    const std::optional<std::string>& system,
    const std::string& text,
    bool raw,
    const boost::json::object& values) {
  if (raw || !side.chat_template) {
    return raw_prompt(side, text);
  }
  Cut parts = cut(side, system, text, false, values);
  const std::vector<Token> end = side.tokenizer.encode(parts.behind, {.parse_special = true});
  if (parts.tokens.size() <= end.size() ||
      !std::equal(end.rbegin(), end.rend(), parts.tokens.rbegin())) {
    throw UserError(
        "the chat template {} joins the text with what is behind it: use --raw",
        side.template_name);
  }
  parts.tokens.resize(parts.tokens.size() - end.size());
  return std::move(parts.tokens);
}

std::vector<Token> prompt_after_cache(
    const TextSide& side, const std::string& text, bool raw, const boost::json::object& values) {
  if (raw || !side.chat_template) {
    return side.tokenizer.encode(text, {.parse_special = true});
  }
  Cut parts = cut(side, std::nullopt, text, true, values);
  const std::vector<Token> begin = side.tokenizer.encode(parts.before, {.parse_special = true});
  if (parts.tokens.size() <= begin.size() ||
      !std::equal(begin.begin(), begin.end(), parts.tokens.begin())) {
    throw UserError(
        "the chat template {} joins the text with what is before it: use --raw",
        side.template_name);
  }
  parts.tokens.erase(
      parts.tokens.begin(), parts.tokens.begin() + static_cast<int64_t>(begin.size()));
  return std::move(parts.tokens);
}

}  // namespace quince::cli
