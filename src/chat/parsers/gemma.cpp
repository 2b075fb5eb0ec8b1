#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "chat/parsers/grammar.h"
#include "chat/parsers/held_text.h"
#include "chat/parsers/parsers.h"
#include "chat/parsers/text_value.h"

namespace quince {

namespace json = boost::json;

namespace {

// How a family of models writes calls: begin "call:" NAME "{" key ":" value, ... "}" end, with
// texts between quotes of its own.
struct GemmaMarks {
  std::string_view begin;
  std::string_view end;
  std::string_view quote;
};
constexpr GemmaMarks kGemma4 = {"<|tool_call>", "<tool_call|>", "<|\"|>"};
constexpr GemmaMarks kFunctionGemma = {"<start_function_call>", "<end_function_call>", "<escape>"};
constexpr std::string_view kCall = "call:";

// Turns {city:<q>Rome<q>,days:[1,2]} into JSON while it comes.
class GemmaArguments {
 public:
  explicit GemmaArguments(std::string_view quote) : quote_(quote) {}

  // Takes what can be taken off held; what came of it is added to out. At the closing brace it has
  // ended, and the rest is not its.
  void add(std::string& held, std::string& out) {
    size_t at = 0;
    while (at < held.size() && !ended_) {
      const std::string_view rest = std::string_view(held).substr(at);
      const size_t taken = state_ == State::text ? take_text(rest, out) : take(rest, out);
      if (taken == 0) {
        break;  // more has to come
      }
      at += taken;
    }
    held.erase(0, at);
  }
  bool ended() const {
    return ended_;
  }

 private:
  enum class State { value, text, key };

  size_t take(std::string_view rest, std::string& out) {
    if (rest.starts_with(quote_)) {
      end_word(out);
      out += '"';
      before_ = state_;
      state_ = State::text;
      mark_ = quote_;
      return quote_.size();
    }
    if (quote_.starts_with(rest)) {
      return 0;
    }
    const char c = rest.front();
    switch (c) {
      case '{':
      case '[':
        end_word(out);
        out += c;
        open_ += c;
        state_ = c == '{' ? State::key : State::value;
        break;
      case '}':
      case ']':
        end_word(out);
        close(out);
        break;
      case ',':
        end_word(out);
        out += ", ";
        state_ = open_.ends_with('{') ? State::key : State::value;
        break;
      case ':':
        if (state_ != State::key) {
          word_ += c;
          break;
        }
        end_word(out);
        out += ": ";
        state_ = State::value;
        break;
      case '"':
        if (word_.empty()) {  // as JSON has it
          out += c;
          mark_ = "\"";
          before_ = state_;
          state_ = State::text;
          break;
        }
        word_ += c;
        break;
      default:
        if (!is_space(c) || !word_.empty()) {
          word_ += c;
        }
    }
    return 1;
  }

  // Whatever closes, what is open last is closed.
  void close(std::string& out) {
    out += open_.ends_with('[') ? ']' : '}';
    open_.resize(open_.size() - 1);
    ended_ = open_.empty();
    state_ = State::value;
  }

  // The inside of a text, up to the quote that ends it.
  size_t take_text(std::string_view rest, std::string& out) {
    const size_t end = rest.find(mark_);
    if (end == 0) {
      out += '"';
      state_ = std::exchange(before_, State::value);
      return mark_.size();
    }
    const size_t safe = end != std::string_view::npos ? end : rest.size() - begun_mark(rest, mark_);
    if (safe > 0) {
      const std::string quoted = json::serialize(json::string_view(rest.substr(0, safe)));
      out.append(quoted, 1, quoted.size() - 2);
    }
    return safe;
  }

  // A name, a number, true, false or null; anything else is a text without its quotes.
  void end_word(std::string& out) {
    word_.resize(word_.size() - trailing_spaces(word_));
    if (word_.empty()) {
      return;
    }
    boost::system::error_code error;
    const json::value value = json::parse(word_, error);
    out += state_ == State::key || error ? json::serialize(json::string_view(word_))
                                         : json::serialize(value);
    word_.clear();
  }

  std::string_view quote_;
  std::string_view mark_;  // that ends the text under way
  State state_ = State::value;
  State before_ = State::value;  // the text
  std::string open_;             // brackets
  std::string word_;
  bool ended_ = false;
};

class GemmaReader : public ToolCallReader {
 public:
  explicit GemmaReader(const GemmaMarks& marks) : marks_(marks), arguments_(marks.quote) {}

  void add(std::string_view text, AnswerDelta& out) override {
    held_ += text;
    while (!held_.empty() && step(out)) {
    }
  }

  // A call that is cut off before it has a name is text.
  void finish(AnswerDelta& out) override {
    if (state_ == State::text) {
      out.content += last_text(held_, begun_);
    } else if (state_ == State::name) {
      out.content += opening_ + held_;
    }
    held_.clear();
  }

 private:
  enum class State { text, name, arguments, over };

  bool step(AnswerDelta& out) {
    switch (state_) {
      case State::text:
        return step_text(out);
      case State::name:
        return step_name(out);
      case State::arguments:
        return step_arguments(out);
      case State::over:
        return step_over();
    }
    return false;
  }

  bool step_text(AnswerDelta& out) {
    if (!take_until(marks_.begin, held_, out.content, opening_)) {
      return false;
    }
    state_ = State::name;
    return true;
  }

  bool step_name(AnswerDelta& out) {
    const std::string_view rest = std::string_view(held_).substr(leading_spaces(held_));
    if (kCall.starts_with(rest) && rest != kCall) {
      return false;
    }
    const size_t brace = rest.find_first_of("{<");
    if (rest.starts_with(kCall) && brace == std::string_view::npos) {
      return false;
    }
    const bool calls = rest.starts_with(kCall) && rest[brace] == '{' && brace > kCall.size();
    if (!calls) {
      out.content += opening_;
      state_ = State::text;
      return true;
    }
    out.calls.push_back(
        {begun_++, std::string(rest.substr(kCall.size(), brace - kCall.size())), ""});
    held_ = std::string(rest.substr(brace));
    arguments_ = GemmaArguments(marks_.quote);
    state_ = State::arguments;
    return true;
  }

  bool step_arguments(AnswerDelta& out) {
    std::string arguments;
    arguments_.add(held_, arguments);
    if (!arguments.empty()) {
      out.calls.push_back({begun_ - 1, "", std::move(arguments)});
    }
    if (!arguments_.ended()) {
      return false;
    }
    ++ended_;
    state_ = State::over;
    return true;
  }

  // Up to the end of the call nothing is anybody's.
  bool step_over() {
    const size_t at = held_.find(marks_.end);
    if (at == std::string::npos) {
      held_.erase(0, held_.size() - begun_mark(held_, marks_.end));
      return false;
    }
    held_.erase(0, at + marks_.end.size());
    state_ = State::text;
    return true;
  }

  const GemmaMarks& marks_;
  GemmaArguments arguments_;
  State state_ = State::text;
  std::string held_;
  std::string opening_;  // spaces and mark of the call: text again, if it turns out to be none
};

// Rules of a grammar for values that a schema describes, as these models write them. Objects have
// their members in the schema's order.
class GemmaRules {
 public:
  explicit GemmaRules(const std::string& quote) : quote_(quote) {}

  // The name of a rule, or an expression.
  std::string value(const std::string& rule, const json::value& given) {
    const json::object* schema = given.if_object();
    const json::value* named = schema != nullptr ? schema->if_contains("type") : nullptr;
    const std::string_view type =
        named != nullptr && named->is_string() ? std::string_view(named->get_string()) : "";
    if (type == "string") {
      return text(rule, *schema);
    }
    if (type == "integer" || type == "number" || type == "boolean") {
      return std::string(type);
    }
    if (type == "array") {
      const json::value* items = schema->if_contains("items");
      const std::string item = items != nullptr ? value(rule + "_item", *items) : "any";
      return fmt::format(R"(("[" ({0} ("," {0})*)? "]"))", item);
    }
    if (type == "object" && schema->contains("properties")) {
      object(rule, *schema);
      return rule;
    }
    return type == "object" ? "object" : "any";
  }

  void object(const std::string& rule, const json::object& schema) {
    const json::value* listed = schema.if_contains("properties");
    const json::value* needed = schema.if_contains("required");
    size_t n = 0;
    if (listed != nullptr && listed->is_object()) {
      for (const auto& [key, member] : listed->get_object()) {
        const std::string name = fmt::format("{}_{}", rule, n);
        const std::string next = fmt::format("{}_{}", rule, n + 1);
        const std::string pair =
            lark_text(std::string(key) + ":") + " " + value(name + "v", member);
        if (requires_member(needed, key)) {
          add("{0}_head: {1} {2}_tail\n{0}_tail: \",\" {1} {2}_tail\n", name, pair, next);
        } else {
          add("{0}_head: {1} {2}_tail | {2}_head\n{0}_tail: (\",\" {1})? {2}_tail\n",
              name,
              pair,
              next);
        }
        ++n;
      }
    }
    add("{0}_{1}_head: \"\"\n{0}_{1}_tail: \"\"\n", rule, n);
    add("{0}: \"{{\" {0}_0_head \"}}\"\n", rule);
  }

  std::string take() {
    return std::move(rules_);
  }

 private:
  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(rules_), format, std::forward<Values>(values)...);
  }

  static bool requires_member(const json::value* list, std::string_view key) {
    return list != nullptr && list->is_array() &&
           std::any_of(list->get_array().begin(), list->get_array().end(), [&](const auto& one) {
             return one == json::value(key);
           });
  }

  std::string text(const std::string& rule, const json::object& schema) {
    const auto body = text_body(schema);
    if (!body) {
      return "text";
    }
    add("{}: /[^<]*/ & {}\n", terminal_name(rule), *body);
    return fmt::format("({0} {1} {0})", quote_, terminal_name(rule));
  }

  const std::string& quote_;
  std::string rules_;
};

std::string grammar(
    const json::array& tools, bool many, const Tokenizer& tokenizer, const GemmaMarks& marks) {
  const std::string quote = lark_mark(tokenizer, marks.quote);
  std::string out = std::string("start: call") + (many ? "+" : "") +
                    "\ncall: " + lark_mark(tokenizer, marks.begin) + " (";
  GemmaRules rules(quote);
  std::string calls;
  for (size_t i = 0; i < tools.size(); ++i) {
    const json::object& function = tools[i].at("function").as_object();
    const std::string name(function.at("name").as_string());
    const json::value* parameters = function.if_contains("parameters");
    out += fmt::format("{}tool_{}", i == 0 ? "" : " | ", i);
    calls += fmt::format("tool_{0}: {1} arguments_{0}\n", i, lark_text(std::string(kCall) + name));
    rules.object(
        fmt::format("arguments_{}", i),
        parameters != nullptr && parameters->is_object() ? parameters->get_object()
                                                         : json::object());
  }
  return out + ") " + lark_mark(tokenizer, marks.end) + "\n" + calls + rules.take() +
         "any: text | number | boolean | \"null\" | list | object\n"
         "list: \"[\" (any (\",\" any)*)? \"]\"\n"
         "object: \"{\" (key \":\" any (\",\" key \":\" any)*)? \"}\"\n"
         "key: /[A-Za-z_][A-Za-z0-9_]*/\n"
         "number: /-?(0|[1-9][0-9]*)(\\.[0-9]+)?/\n"
         "integer: /-?(0|[1-9][0-9]*)/\n"
         "boolean: \"true\" | \"false\"\n"
         "text: " +
         quote + " /[^<]*/ " + quote + "\n";
}

}  // namespace

std::unique_ptr<ToolCallReader> make_gemma(const AnswerReaderOptions&) {
  return std::make_unique<GemmaReader>(kGemma4);
}

std::unique_ptr<ToolCallReader> make_function_gemma(const AnswerReaderOptions&) {
  return std::make_unique<GemmaReader>(kFunctionGemma);
}

std::string gemma_grammar(const json::array& tools, bool many, const Tokenizer& tokenizer) {
  return grammar(tools, many, tokenizer, kGemma4);
}

std::string function_gemma_grammar(
    const json::array& tools, bool many, const Tokenizer& tokenizer) {
  return grammar(tools, many, tokenizer, kFunctionGemma);
}

}  // namespace quince
