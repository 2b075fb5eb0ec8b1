#include "chat/parsers/python_arguments.h"

#include <cstdint>
#include <string>
#include <utility>

#include <boost/json.hpp>

#include "chat/parsers/grammar.h"
#include "chat/parsers/held_text.h"

namespace quince {

namespace json = boost::json;

namespace {

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         (static_cast<unsigned char>(c) & 0x80) != 0;
}

std::string quoted(std::string_view text) {
  return json::serialize(json::string_view(text));
}

}  // namespace

void PythonArguments::add(std::string& held, std::string& out) {
  size_t at = 0;
  while (at < held.size() && !ended_) {
    const size_t taken = take(std::string_view(held).substr(at), out);
    if (taken == 0) {
      break;  // more has to come
    }
    at += taken;
  }
  held.erase(0, at);
}

size_t PythonArguments::take(std::string_view rest, std::string& out) {
  if (!std::exchange(begun_, true)) {
    out += '{';
  }
  switch (state_) {
    case State::key:
      return take_key(rest, out);
    case State::value:
      return take_value(rest, out);
    case State::text:
      return take_text(rest, out);
    case State::escape:
      return take_escape(rest.front(), out);
    case State::code:
      return take_code(rest, out);
  }
  return 0;
}

// An argument's name, or the argument itself where it is given without one.
size_t PythonArguments::take_key(std::string_view rest, std::string& out) {
  size_t at = leading_spaces(rest);
  const size_t begin = at;
  while (at < rest.size() && is_name(rest[at])) {
    ++at;
  }
  const size_t end = at;
  at += leading_spaces(rest.substr(at));
  if (at == rest.size()) {
    return 0;
  }
  if (end == begin && rest[at] == ')') {
    close(out);
    return at + 1;
  }
  if (end == begin && rest[at] == ',') {
    return at + 1;
  }
  const bool named = end > begin && rest[at] == '=';
  begin_argument(
      named                    ? std::string(rest.substr(begin, end - begin))
      : given_ < names_.size() ? names_[given_]
                               : "argument_" + std::to_string(given_ + 1),
      out);
  state_ = State::value;
  return named ? at + 1 : begin == 0 ? take_value(rest, out) : begin;
}

void PythonArguments::begin_argument(std::string_view name, std::string& out) {
  out += given_++ == 0 ? "" : ", ";
  out += quoted(name) + ": ";
  comma_ = valued_ = false;
}

void PythonArguments::begin_value(std::string& out) {
  valued_ = true;
  out += std::exchange(comma_, false) ? ", " : "";
}

size_t PythonArguments::take_value(std::string_view rest, std::string& out) {
  const char c = rest.front();
  if ((c == '"' || c == '\'') && word_.size() < 3) {  // r"", f"" and such leave their letter
    return begin_text(rest, out);
  }
  if (c == '[' || c == '(' || c == '{') {
    end_word(out);
    begin_value(out);
    open_ += c == '(' ? '[' : c;
    out += open_.back();
  } else if (open_.empty() && (c == ')' || c == ',')) {
    end_word(out);
    out += valued_ ? "" : "null";
    state_ = State::key;
    if (c == ')') {
      close(out);
    }
  } else if (c == ']' || c == ')' || c == '}') {
    end_word(out);
    comma_ = false;
    if (!open_.empty()) {
      out += open_.back() == '[' ? ']' : '}';
      open_.pop_back();
    }
  } else if (c == ',') {
    end_word(out);
    comma_ = true;
  } else if (c == ':' && open_.ends_with('{')) {
    end_word(out, true);
    out += ": ";
  } else if (!is_space(c) || !word_.empty()) {
    word_ += c;
  }
  return 1;
}

// One quotation mark or three.
size_t PythonArguments::begin_text(std::string_view rest, std::string& out) {
  const std::string three(3, rest.front());
  if (rest.size() < 3 && std::string_view(three).starts_with(rest)) {
    return 0;
  }
  word_.clear();
  begin_value(out);
  quote_ = rest.starts_with(three) ? three : three.substr(2);
  out += '"';
  state_ = State::text;
  return quote_.size();
}

size_t PythonArguments::take_text(std::string_view rest, std::string& out) {
  const size_t special = rest.find_first_of(std::string("\\") + quote_.front());
  if (special == std::string_view::npos) {
    out += escaped(rest);
    return rest.size();
  }
  if (special > 0) {
    out += escaped(rest.substr(0, special));
    return special;
  }
  if (rest.front() == '\\') {
    state_ = State::escape;
    return 1;
  }
  if (rest.starts_with(quote_)) {
    out += '"';
    state_ = State::value;
    return quote_.size();
  }
  if (std::string_view(quote_).starts_with(rest)) {
    return 0;
  }
  out += escaped(rest.substr(0, 1));
  return 1;
}

size_t PythonArguments::take_escape(char c, std::string& out) {
  state_ = State::text;
  switch (c) {
    case 'n':
    case 't':
    case 'r':
    case 'b':
    case 'f':
      out += std::string("\\") + c;
      break;
    case '\n':  // the line goes on
      break;
    case 'x':
    case 'u':
    case 'U':
      code_.clear();
      code_size_ = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      state_ = State::code;
      break;
    case '\\':
    case '"':
      out += std::string("\\") + c;
      break;
    case '\'':
      out += c;
      break;
    default:
      out += std::string("\\\\") + c;  // as Python leaves it
  }
  return 1;
}

// JSON has four digits of it, or two times four.
size_t PythonArguments::take_code(std::string_view rest, std::string& out) {
  const char c = rest.front();
  constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
  if (kDigits.find(c) == std::string_view::npos) {  // none after all
    state_ = State::text;
    return take_text(rest, out);
  }
  code_ += c;
  if (code_.size() < code_size_) {
    return 1;
  }
  state_ = State::text;
  const auto hex = [&](uint32_t unit) {
    std::string digits(4, '0');
    for (size_t i = 4; i-- > 0; unit >>= 4) {
      digits[i] = kDigits[unit & 15];
    }
    return "\\u" + digits;
  };
  const auto code = static_cast<uint32_t>(std::stoul(code_, nullptr, 16));
  if (code >= 0xd800 && code < 0xe000) {  // half of a character
    out += hex(0xfffd);
  } else if (code < 0x10000) {
    out += hex(code);
  } else if (code < 0x110000) {
    out += hex(0xd800 + ((code - 0x10000) >> 10)) + hex(0xdc00 + ((code - 0x10000) & 0x3ff));
  }
  return 1;
}

// True, False, None, a number; anything else is a text without its quotes.
void PythonArguments::end_word(std::string& out, bool is_key) {
  word_.resize(word_.size() - trailing_spaces(word_));
  const std::string word = std::exchange(word_, {});
  if (word.empty()) {
    return;
  }
  begin_value(out);
  if (is_key) {
    out += quoted(word);
    return;
  }
  if (word == "True" || word == "False" || word == "None") {
    out += word == "True" ? "true" : word == "False" ? "false" : "null";
    return;
  }
  boost::system::error_code error;
  const json::value value = json::parse(word, error);
  out += error ? quoted(word) : json::serialize(value);
}

void PythonArguments::close(std::string& out) {
  out += '}';
  ended_ = true;
}

}  // namespace quince
