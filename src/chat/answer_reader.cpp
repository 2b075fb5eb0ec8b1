#include "chat/answer_reader.h"

#include <utility>

#include "chat/parsers/held_text.h"

namespace quince {

ReasoningTags reasoning_tags(std::string_view chat_template) {
  static constexpr ReasoningTags kKnown[] = {
      {"[THINK]", "[/THINK]"},
      {"<seed:think>", "</seed:think>"},
      {"<|START_THINKING|>", "<|END_THINKING|>"},
      {"<|channel>thought", "<channel|>", "<|channel>"}};
  for (const ReasoningTags& tags : kKnown) {
    if (chat_template.find(tags.begin) != std::string_view::npos) {
      return tags;
    }
  }
  return {"<think>", "</think>"};  // of most, also where the template does not speak of it
}

AnswerReader::AnswerReader(const AnswerReaderOptions& options)
    : tags_(options.reasoning),
      calls_(options.tools != nullptr ? options.tools->make(options) : nullptr),
      state_(
          options.reasoning.begin.empty() ? State::answer
          : options.begins_in_reasoning   ? State::reasoning
                                          : State::before) {}

void AnswerReader::add(std::string_view text, AnswerDelta& out) {
  if (state_ == State::answer) {
    return add_answer(text, out);
  }
  held_ += text;
  if (state_ == State::before) {
    add_before(out);
  }
  if (state_ == State::reasoning) {
    add_reasoning(out);
  }
  if (state_ == State::after) {  // spaces between the two belong to neither
    held_.erase(0, leading_spaces(held_));
    if (!held_.empty()) {
      state_ = State::answer;
      add_answer(std::exchange(held_, {}), out);
    }
  }
}

// Reasoning comes first, or not at all.
void AnswerReader::add_before(AnswerDelta& out) {
  const size_t spaces = leading_spaces(held_);
  const std::string_view rest = std::string_view(held_).substr(spaces);
  if (rest.starts_with(tags_.begin)) {
    held_.erase(0, spaces + tags_.begin.size());
    state_ = State::reasoning;
  } else if (!tags_.begin.starts_with(rest)) {
    state_ = State::answer;
    add_answer(std::exchange(held_, {}), out);
  }
}

void AnswerReader::add_reasoning(AnswerDelta& out) {
  const size_t end = held_.find(tags_.end);
  if (end != std::string::npos) {
    show_reasoning(std::string_view(held_).substr(0, end), out);
    held_.erase(0, end + tags_.end.size());
    state_ = State::after;
    return;
  }
  const size_t safe = held_.size() - begun_mark(held_, tags_.end);
  show_reasoning(std::string_view(held_).substr(0, safe), out);
  held_.erase(0, safe);
}

// Without the spaces around it.
void AnswerReader::show_reasoning(std::string_view text, AnswerDelta& out) {
  if (!reasoned_) {
    text.remove_prefix(leading_spaces(text));
  }
  const size_t spaces = trailing_spaces(text);
  if (spaces < text.size()) {
    reasoned_ = true;
    out.reasoning += std::exchange(spaces_, {});
    out.reasoning += text.substr(0, text.size() - spaces);
  }
  if (reasoned_) {
    spaces_ += text.substr(text.size() - spaces);
  }
}

// A byte at a time: so it is known what of a piece stands before a call, and what behind it.
void AnswerReader::add_answer(std::string_view text, AnswerDelta& out) {
  if (!calls_) {
    out.content += text;
    return;
  }
  for (const char c : text) {
    AnswerDelta read;
    calls_->add(std::string_view(&c, 1), read);
    add_read(std::move(read), out);
  }
}

// Of one step: text stands before a call that begins with it, and behind one that goes on in it.
void AnswerReader::add_read(AnswerDelta read, AnswerDelta& out) {
  size_t at = out.content.size();
  out.content += read.content;
  out.reasoning += read.reasoning;
  for (ToolCallDelta& call : read.calls) {
    at = call.name.empty() ? at : out.content.size();
    call.at = at;
    if (call.name.empty() && !out.calls.empty() && out.calls.back().index == call.index &&
        out.calls.back().at == at) {
      out.calls.back().arguments += call.arguments;
    } else {
      out.calls.push_back(std::move(call));
    }
  }
}

void AnswerReader::finish(AnswerDelta& out) {
  if (state_ == State::reasoning) {
    show_reasoning(held_, out);
  } else if (state_ == State::before) {
    add_answer(held_, out);
  }
  held_.clear();
  if (calls_) {
    AnswerDelta read;
    calls_->finish(read);
    add_read(std::move(read), out);
  }
}

}  // namespace quince
