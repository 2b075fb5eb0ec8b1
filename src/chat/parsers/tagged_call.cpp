#include "chat/parsers/tagged_call.h"

#include <algorithm>
#include <utility>

#include "chat/parsers/grammar.h"
#include "chat/parsers/held_text.h"

namespace quince {

namespace json = boost::json;

namespace {

// {"string": true} of string="true" among attributes; empty where they say nothing.
std::string_view said_type(std::string_view attributes) {
  constexpr std::string_view kString = "string=\"";
  const size_t at = attributes.find(kString);
  const std::string_view rest =
      at != std::string_view::npos ? attributes.substr(at + kString.size()) : "";
  return rest.substr(0, rest.find('"'));
}

}  // namespace

TaggedCall::State TaggedCall::read(int index, std::string& held, AnswerDelta& out) {
  const bool was_named = named();
  while (!held.empty() && step(held)) {
  }
  if (named() && !was_named) {
    out.calls.push_back({index, name_, ""});
  }
  if (!given_.empty()) {
    out.calls.push_back({index, "", std::exchange(given_, {})});
  }
  return state_;
}

void TaggedCall::finish(int index, std::string& held, AnswerDelta& out) {
  if (state_ == State::text && !doubled_ && !held.empty()) {
    out.calls.push_back({index, "", escaped(held)});
  }
  held.clear();
}

bool TaggedCall::step(std::string& held) {
  switch (state_) {
    case State::name:
      return step_name(held);
    case State::key:
      return step_key(held);
    case State::value:
      return step_value(held);
    case State::text:
      return step_text(held);
    case State::ended:
    case State::none:
      return false;
  }
  return false;
}

// Of a tag whose name or key begins there: the place of its '>'.
size_t TaggedCall::head_end(std::string_view held, size_t begin) const {
  const size_t quote = tags_->quoted ? held.find('"', begin) : begin;
  return quote == std::string_view::npos ? quote : held.find('>', quote);
}

bool TaggedCall::step_name(std::string& held) {
  const size_t end = head_end(held, 0);
  const std::string_view head = std::string_view(held).substr(0, end);
  const std::string_view name = trimmed(head.substr(0, tags_->quoted ? head.find('"') : end));
  if (name.find_first_of("<{\n") != std::string_view::npos ||
      (end != std::string::npos && name.empty())) {
    state_ = State::none;
    return false;
  }
  if (end == std::string::npos) {
    return false;
  }
  name_ = std::string(name);
  given_ = "{";
  held.erase(0, end + 1);
  state_ = State::key;
  return true;
}

// Spaces, and then a key, or the end.
bool TaggedCall::step_key(std::string& held) {
  held.erase(0, leading_spaces(held));
  if (held.starts_with(tags_->call_end)) {
    given_ += "}";
    held.erase(0, tags_->call_end.size());
    state_ = State::ended;
    return false;
  }
  if (tags_->key.starts_with(held) || tags_->call_end.starts_with(held)) {
    return false;
  }
  if (!held.starts_with(tags_->key)) {
    // Nothing that belongs here: up to the next tag it is nobody's.
    const size_t mark = held.find('<', 1);
    held.erase(0, mark);
    return mark != std::string::npos;
  }
  const size_t end = head_end(held, tags_->key.size());
  if (end == std::string::npos) {
    return false;
  }
  const std::string_view head =
      std::string_view(held).substr(tags_->key.size(), end - tags_->key.size());
  const size_t key_end = tags_->quoted ? head.find('"') : head.size();
  key_ = std::string(trimmed(head.substr(0, key_end)));
  const std::string_view type = said_type(head.substr(key_end));
  doubled_ = std::find(keys_.begin(), keys_.end(), key_) != keys_.end();
  if (!doubled_) {
    given_ += (keys_.empty() ? "" : ",") + json::serialize(json::string_view(key_)) + ":";
    keys_.push_back(key_);
  }
  const bool text = type.empty() ? is_text_argument(*tools_, name_, key_) : type == "true";
  held.erase(0, end + 1);
  state_ = text ? State::text : State::value;
  first_ = true;
  given_ += text && !doubled_ ? "\"" : "";
  return true;
}

// JSON, or as Python writes it, or a text after all.
std::string TaggedCall::value_json(std::string_view text) const {
  const std::string_view word = trimmed(text);
  for (const auto& [python, written] :
       {std::pair{"True", "true"}, std::pair{"False", "false"}, std::pair{"None", "null"}}) {
    if (word == python) {
      return written;
    }
  }
  boost::system::error_code error;
  const json::value parsed = json::parse(word, error);
  return error ? json::serialize(json::string_view(text)) : json::serialize(parsed);
}

bool TaggedCall::step_value(std::string& held) {
  const size_t end = held.find(tags_->value_end);
  if (end == std::string::npos) {
    return false;
  }
  std::string_view text = std::string_view(held).substr(0, end);
  if (tags_->lines) {
    text.remove_prefix(text.starts_with('\n') ? 1 : 0);
    text.remove_suffix(text.ends_with('\n') ? 1 : 0);
  }
  given_ += doubled_ ? "" : value_json(text);
  held.erase(0, end + tags_->value_end.size());
  state_ = State::key;
  return true;
}

bool TaggedCall::step_text(std::string& held) {
  if (std::exchange(first_, false) && tags_->lines && held.starts_with('\n')) {
    held.erase(0, 1);
  }
  const size_t end = held.find(tags_->value_end);
  const bool ends = end != std::string::npos;
  std::string_view safe = std::string_view(held).substr(
      0, ends ? end : held.size() - begun_mark(held, tags_->value_end));
  if (tags_->lines && safe.ends_with('\n')) {
    safe.remove_suffix(1);  // unless more follows
  }
  given_ += doubled_ ? "" : escaped(safe) + (ends ? "\"" : "");
  held.erase(0, ends ? end + tags_->value_end.size() : safe.size());
  state_ = ends ? State::key : State::text;
  return ends;
}

}  // namespace quince
