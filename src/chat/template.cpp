#include "chat/template.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <mutex>

#include <quince_bridge.h>

#include "base/error.h"
#include "tokenizer/tokenizer_handle.h"

namespace quince {

namespace {

// Takes over memory of the bridge.
std::string take(qb_bytes bytes) {
  std::string text(bytes.data ? bytes.data : "", bytes.size);
  quince_bridge_bytes_free(bytes);
  return text;
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return parts;
}

qb_time to_bridge(const std::tm& parts) {
  return {
      parts.tm_year + 1900,
      parts.tm_mon + 1,
      parts.tm_mday,
      parts.tm_hour,
      parts.tm_min,
      parts.tm_sec,
      parts.tm_wday,
      parts.tm_yday};
}

struct Prompt {
  std::string text;
  std::vector<size_t> cuts;
};

// The stretches between cuts: special tokens lie within one of them.
std::vector<TextRange> between(const Prompt& prompt) {
  std::vector<TextRange> ranges;
  size_t begin = 0;
  for (size_t cut : prompt.cuts) {
    if (cut > begin) {
      ranges.push_back({begin, cut});
      begin = cut;
    }
  }
  ranges.push_back({begin, prompt.text.size()});
  return ranges;
}

// JSON has no infinities; numbers like 1e400 have become ones by now.
bool is_finite(const boost::json::value& value) {
  if (const auto* list = value.if_array()) {
    return std::all_of(list->begin(), list->end(), is_finite);
  }
  if (const auto* object = value.if_object()) {
    return std::all_of(
        object->begin(), object->end(), [](const auto& item) { return is_finite(item.value()); });
  }
  return !value.is_double() || std::isfinite(value.get_double());
}

}  // namespace

struct ChatTemplate::Impl {
  Impl(std::string_view text, boost::json::object tokens, std::string_view named)
      : special(std::move(tokens)), source(named) {
    qb_bytes error{};
    handle = quince_bridge_template_new({text.data(), text.size()}, &error);
    if (!handle) {
      throw UserError("{}: {}", source, take(error));
    }
  }
  ~Impl() {
    quince_bridge_template_free(handle);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Prompt render(
      const boost::json::array& messages,
      const RenderOptions& options,
      const qb_tokenizer* tokenizer) const;

  qb_template* handle = nullptr;
  boost::json::object special;
  std::string source;
  std::once_flag tried;  // skills are
  TemplateSkills skills;
};

Prompt ChatTemplate::Impl::render(
    const boost::json::array& messages,
    const RenderOptions& options,
    const qb_tokenizer* tokenizer) const {
  const boost::json::value given = boost::json::object{
      {"messages", messages},
      {"tools", options.tools},
      {"extra", options.extra},
      {"special", special},
      {"add_generation_prompt", options.add_generation_prompt}};
  if (!is_finite(given)) {
    throw UserError("{}: a number among the values given to it is too large", source);
  }
  const std::string request = boost::json::serialize(given);
  const qb_time now = to_bridge(options.now ? *options.now : local_time());
  qb_bytes text{};
  qb_ids cuts{};
  qb_bytes error{};
  bool refused = false;
  const bool good = quince_bridge_template_render(
      handle, {request.data(), request.size()}, &now, tokenizer, &text, &cuts, &refused, &error);
  if (!good) {
    throw UserError(
        "{}: {}{}", source, refused ? "the template refuses this conversation: " : "", take(error));
  }
  Prompt prompt;
  prompt.cuts.assign(cuts.data, cuts.data + cuts.size);
  quince_bridge_ids_free(cuts);
  prompt.text = take(text);
  return prompt;
}

ChatTemplate::ChatTemplate(
    std::string_view text, boost::json::object special_tokens, std::string_view source)
    : impl_(std::make_unique<Impl>(text, std::move(special_tokens), source)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(
    const boost::json::array& messages, const RenderOptions& options) const {
  return impl_->render(messages, options, nullptr).text;
}

std::vector<Token> ChatTemplate::encode(
    const Tokenizer& tokenizer,
    const boost::json::array& messages,
    const RenderOptions& options,
    const std::function<void(size_t bytes)>& rendered) const {
  const Prompt prompt = impl_->render(messages, options, tokenizer_handle(tokenizer));
  if (rendered) {
    rendered(prompt.text.size());
  }
  return tokenizer.encode(prompt.text, between(prompt));
}

namespace {

// Whether all of these texts are in the prompt. One that is refused has none.
bool shows(
    const ChatTemplate& chat_template,
    const boost::json::array& messages,
    const RenderOptions& options,
    std::initializer_list<std::string_view> texts) {
  try {
    const std::string prompt = chat_template.render(messages, options);
    return std::all_of(texts.begin(), texts.end(), [&](std::string_view text) {
      return prompt.find(text) != std::string::npos;
    });
  } catch (const UserError&) {
    return false;
  }
}

TemplateSkills try_skills(const ChatTemplate& chat_template) {
  const boost::json::object system{{"role", "system"}, {"content", "quince_system"}};
  const boost::json::object user{{"role", "user"}, {"content", "quince_user"}};
  RenderOptions with_tools;
  with_tools.tools = boost::json::parse(R"([{"type": "function", "function": {
      "name": "quince_tool", "description": "quince_description", "parameters": {"type": "object",
      "properties": {"quince_key": {"type": "string", "description": "quince_key"}},
      "required": ["quince_key"]}}}])")
                         .as_array();
  const boost::json::value called = boost::json::parse(R"([
      {"role": "user", "content": "quince_user"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "quince000", "type": "function",
          "function": {"name": "quince_tool", "arguments": {"quince_key": "quince_value"}}}]},
      {"role": "tool", "tool_call_id": "quince000", "name": "quince_tool",
          "content": "quince_result"}])");
  TemplateSkills skills;
  skills.system = shows(chat_template, {system, user}, {}, {"quince_system"});
  skills.tools = shows(chat_template, {user}, with_tools, {"quince_tool"}) ||
                 shows(chat_template, {system, user}, with_tools, {"quince_tool"});
  skills.calls =
      shows(chat_template, called.get_array(), with_tools, {"quince_value", "quince_result"});
  return skills;
}

}  // namespace

const TemplateSkills& ChatTemplate::skills() const {
  std::call_once(impl_->tried, [&] { impl_->skills = try_skills(*this); });
  return impl_->skills;
}

}  // namespace quince
