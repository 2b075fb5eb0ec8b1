// Reads one call that is written with tags, name and arguments each between its own, while it
// comes:
//   <function=name><parameter=key>value</parameter>...</function>             Qwen3-Coder
//   <invoke name="name"><parameter name="key">value</parameter>...</invoke>   MiniMax, DeepSeek 3.2
// Texts are passed on as they are written; what else a value is shows at its end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "chat/answer_reader.h"

namespace quince {

struct CallTags {
  std::string_view call;  // up to the name
  std::string_view call_end;
  std::string_view key;  // up to the key
  std::string_view value_end;
  bool quoted = false;  // name and key end with a quotation mark, attributes may follow
  bool lines = false;   // a line break at each end of a value is not part of it
};

class TaggedCall {
 public:
  // Of one argument: the tags and tools outlive this. tools: what arguments of theirs are texts.
  TaggedCall(const CallTags& tags, const boost::json::array& tools)
      : tags_(&tags), tools_(&tools) {}

  enum class State { name, key, value, text, ended, none };  // none: it is no call

  // Takes from held, which begins behind the call's first tag, what can be taken. index: of the
  // call in its answer.
  State read(int index, std::string& held, AnswerDelta& out);
  // The text that it was cut off in, if any.
  void finish(int index, std::string& held, AnswerDelta& out);
  bool named() const {
    return !name_.empty();
  }

 private:
  bool step(std::string& held);
  bool step_name(std::string& held);
  bool step_key(std::string& held);
  bool step_value(std::string& held);
  bool step_text(std::string& held);
  size_t head_end(std::string_view held, size_t begin) const;
  std::string value_json(std::string_view text) const;

  const CallTags* tags_;
  const boost::json::array* tools_;
  State state_ = State::name;
  std::string name_;
  std::string key_;
  std::vector<std::string> keys_;
  std::string given_;     // arguments, as far as they are known by now
  bool doubled_ = false;  // the value's key came before: the first one counts
  bool first_ = true;     // character of a text
};

}  // namespace quince
