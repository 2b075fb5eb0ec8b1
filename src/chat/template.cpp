#include "chat/template.h"

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
};

Prompt ChatTemplate::Impl::render(
    const boost::json::array& messages,
    const RenderOptions& options,
    const qb_tokenizer* tokenizer) const {
  const std::string request = boost::json::serialize(boost::json::object{
      {"messages", messages},
      {"tools", options.tools},
      {"extra", options.extra},
      {"special", special},
      {"add_generation_prompt", options.add_generation_prompt}});
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
    const RenderOptions& options) const {
  const Prompt prompt = impl_->render(messages, options, tokenizer_handle(tokenizer));
  return tokenizer.encode(prompt.text, between(prompt));
}

}  // namespace quince
