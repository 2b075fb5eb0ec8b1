// A model's chat template (Jinja, Hugging Face's dialect) and the prompt it makes of a
// conversation. Rendering is bounded in time, recursion and output. Immutable after construction;
// any thread.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "tokenizer/tokenizer.h"

namespace quince {

struct RenderOptions {
  bool add_generation_prompt = true;
  boost::json::array tools;    // empty: the template sees none
  boost::json::object extra;   // chat_template_kwargs: enable_thinking, reasoning_effort, ...
  std::optional<std::tm> now;  // for strftime_now; absent: the local time
};

// What a template shows of tools and of system messages, found out by trying.
struct TemplateSkills {
  bool tools = false;   // which ones there are
  bool calls = false;   // calls in the conversation, and what came of them
  bool system = false;  // a message that is the system's
};

class ChatTemplate {
 public:
  // text: the template; special_tokens: bos_token, eos_token, ... as strings for the template.
  // source is named in errors. Throws UserError on a syntax error (with its line).
  ChatTemplate(std::string_view text, boost::json::object special_tokens, std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // messages: OpenAI form (role, content as string or parts, tool_calls, ...). Fields that are null
  // are left out. Tool-call arguments may be a JSON string or an object: the template sees an
  // object, or the text where it cannot do with an object. Reasoning may stand under
  // reasoning_content, reasoning or thinking. Throws UserError when the template refuses
  // (raise_exception) or exceeds its bounds.
  std::string render(const boost::json::array& messages, const RenderOptions& options = {}) const;

  // render() then encode. Special tokens written by the template become special tokens; the same
  // characters inside a message's text are encoded as ordinary text.
  // rendered: told the text's bytes before they are encoded; may throw.
  std::vector<Token> encode(
      const Tokenizer& tokenizer,
      const boost::json::array& messages,
      const RenderOptions& options = {},
      const std::function<void(size_t bytes)>& rendered = {}) const;

  // Tried when first asked for.
  const TemplateSkills& skills() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quince
