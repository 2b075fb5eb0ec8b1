#include "chat/parsers/call_scanner.h"

#include <utility>

#include <boost/json.hpp>

#include "chat/parsers/held_text.h"

namespace quince {

namespace {

bool is_arguments(std::string_view key) {
  return key == "arguments" || key == "parameters";
}

}  // namespace

size_t CallScanner::add(std::string_view text) {
  size_t taken = 0;
  while (taken < text.size() && !ended_ && !broken_) {
    take(text[taken]);
    taken += broken_ ? 0 : 1;
  }
  return taken;
}

std::string CallScanner::take_arguments() {
  if (!named_) {
    return "";
  }
  if (ended_ && !std::exchange(has_arguments_, true)) {
    arguments_ = "{}";
  }
  return std::exchange(arguments_, {});
}

std::string CallScanner::text_at(size_t begin) const {
  boost::system::error_code error;
  const auto value = boost::json::parse(std::string_view(raw_).substr(begin), error);
  return !error && value.is_string() ? std::string(value.get_string()) : "";
}

void CallScanner::take(char c) {
  if (depth_ == 0 && c != '{' && !is_space(c)) {
    broken_ = true;
    return;
  }
  raw_ += c;
  // Objects and lists are passed on as they come.
  const bool wanted = is_arguments(key_) && !arguments_over_;
  const bool streams = depth_ > 1 && in_value_ && wanted;
  if (in_string_) {
    take_in_string(c);
  } else if (c == '"') {
    begin_value();
    in_string_ = true;
    string_at_ = raw_.size() - 1;
  } else if (c == '{' || c == '[') {
    open();
  } else if (c == '}' || c == ']') {
    close();
  } else if (depth_ == 1 && c == ':' && std::exchange(wants_colon_, false)) {
    in_value_ = true;
    value_at_ = kNone;
  } else if (depth_ == 1 && c == ',') {
    end_value();
    wants_key_ = true;
  } else if (!is_space(c)) {
    begin_value();
  }
  if (streams || (depth_ == 2 && in_value_ && value_at_ == raw_.size() - 1 && wanted)) {
    has_arguments_ = true;
    arguments_ += c;
    arguments_over_ = depth_ == 1;
  }
}

void CallScanner::take_in_string(char c) {
  if (escaped_) {
    escaped_ = false;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    in_string_ = false;
    if (depth_ == 1 && wants_key_) {
      key_ = text_at(string_at_);
      wants_key_ = false;
      wants_colon_ = true;
    } else if (depth_ == 1) {
      end_value();
    }
  }
}

void CallScanner::open() {
  begin_value();
  if (++depth_ == 1) {
    wants_key_ = true;
  }
}

void CallScanner::close() {
  if (--depth_ == 0) {
    end_value();
    ended_ = true;
  } else if (depth_ == 1) {
    in_value_ = false;
  }
}

void CallScanner::begin_value() {
  if (depth_ == 1 && in_value_ && value_at_ == kNone) {
    value_at_ = raw_.size() - 1;
  }
}

// Of texts and what has no end of its own. Arguments may be a text that holds the JSON.
void CallScanner::end_value() {
  if (!std::exchange(in_value_, false) || value_at_ == kNone || raw_[value_at_] != '"') {
    return;
  }
  if (key_ == "name" && !named_) {
    name_ = text_at(value_at_);
    named_ = !name_.empty();
  } else if (is_arguments(key_) && !has_arguments_) {
    arguments_ = text_at(value_at_);
    has_arguments_ = arguments_over_ = true;
  }
}

}  // namespace quince
