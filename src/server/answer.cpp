#include "server/answer.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace quince::server {

namespace {

std::string finish_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::length:
    case FinishReason::deadline:
      return "length";
    case FinishReason::none:
    case FinishReason::stop:
    case FinishReason::cancelled:
    case FinishReason::error:
      return "stop";
  }
  return "stop";
}

void add_read(AnswerDelta read, Delta& delta) {
  for (ToolCallDelta& call : read.calls) {
    call.at += delta.text.size();
  }
  delta.text += read.content;
  delta.reasoning += read.reasoning;
  std::move(read.calls.begin(), read.calls.end(), std::back_inserter(delta.calls));
}

template <typename T>
void move_behind(std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  from.clear();
}

}  // namespace

size_t Delta::shown_bytes() const {
  size_t bytes = text.size() + reasoning.size();
  for (const ToolCallDelta& call : calls) {
    bytes += call.name.size() + call.arguments.size();
  }
  return bytes;
}

void Delta::in_order(
    const std::function<void(std::string_view)>& on_text,
    const std::function<void(const ToolCallDelta&)>& on_call) const {
  const std::string_view all(text);
  size_t shown = 0;
  const auto show_until = [&](size_t end) {
    if (end > shown) {
      on_text(all.substr(shown, end - shown));
      shown = end;
    }
  };
  for (const ToolCallDelta& call : calls) {
    show_until(std::min(call.at, all.size()));
    on_call(call);
  }
  show_until(all.size());
}

// A form speaks of every character that the tokens stand for: then nothing is taken off the
// beginning.
Answer::Answer(TokenStream& stream, const ServedModel& model, const GenerationParams& params)
    : stream_(stream),
      decoder_(
          model.text.tokenizer,
          {.skip_special = params.skip_special,
           .continues = params.sampling.constraint.has_value()}),
      matcher_(params.stops),
      one_call_(params.one_call),
      include_stop_(params.include_stop),
      wants_tokens_(params.sampling.wants_logprobs()),
      wants_prompt_(params.sampling.prompt_logprobs >= 0) {
  if (params.reader) {
    reader_.emplace(*params.reader);
    const auto add = [&](std::string_view mark) {
      const auto id = model.text.tokenizer.token_to_id(mark);
      if (id && params.skip_special && model.text.tokenizer.is_special(*id)) {
        marks_.emplace_back(*id, mark);  // others leave their text by themselves
      }
    };
    if (params.reader->tools != nullptr) {
      for (const std::string_view mark : params.reader->tools->marks) {
        add(mark);
      }
    }
    if (!params.reader->reasoning.begin.empty()) {
      add(params.reader->reasoning.token);
      add(params.reader->reasoning.end);
    }
  }
}

std::string Answer::piece_of(Token id) {
  std::string piece = decoder_.add(id);
  for (const auto& [mark, text] : marks_) {
    if (id == mark) {
      return piece.append(text);
    }
  }
  return piece;
}

Delta Answer::take(size_t max_bytes) {
  Delta delta;
  while (!end_ && delta.shown_bytes() < max_bytes && stream_.ready()) {
    std::optional<GeneratedToken> token = stream_.next();
    if (token) {
      take_token(std::move(*token), delta);
    } else {
      finish(delta);
    }
  }
  return delta;
}

void Answer::take_token(GeneratedToken token, Delta& delta) {
  ++tokens_;
  const Token id = token.id;
  held_ids_.push_back(id);
  if (wants_tokens_) {
    held_tokens_.push_back(std::move(token));
  }
  if (reader_ && reader_->in_reasoning()) {
    ++reasoning_tokens_;
  }
  emit(matcher_.add(piece_of(id)), delta);
  if (one_call_ && reader_ && reader_->calls_ended() > 0) {
    stream_.cancel();
    stop(FinishReason::stop);
    return finish_reading(delta);
  }
  if (matcher_.stopped()) {
    stream_.cancel();
    stop(FinishReason::stop);
    if (include_stop_) {
      emit(*matcher_.stop_string(), delta);
    }
    finish_reading(delta);
  }
}

void Answer::emit(const std::string& text, Delta& delta) {
  if (text.empty()) {
    return;  // its tokens wait for the text that they are part of
  }
  read(text, delta);
  move_behind(held_tokens_, delta.tokens);
  move_behind(held_ids_, delta.ids);
}

void Answer::read(const std::string& text, Delta& delta) {
  if (!reader_) {
    delta.text += text;
    return;
  }
  AnswerDelta read;
  reader_->add(text, read);
  add_read(std::move(read), delta);
}

void Answer::finish_reading(Delta& delta) {
  if (reader_) {
    AnswerDelta read;
    reader_->finish(read);
    add_read(std::move(read), delta);
    end_->calls = reader_->calls_begun();
    const bool cut = end_->stop_text && reader_->calls_ended() < end_->calls;
    if (end_->calls > 0 && end_->finish_reason == "stop" && !cut) {
      end_->finish_reason = "tool_calls";
    }
  }
}

void Answer::finish(Delta& delta) {
  // Only an answer that the model ended itself can be broken at its end.
  const bool cut = stream_.finish_reason() != FinishReason::stop;
  emit(matcher_.add(decoder_.finish(cut)), delta);
  emit(matcher_.finish(), delta);
  if (!matcher_.stopped()) {  // tokens without a text
    move_behind(held_tokens_, delta.tokens);
    move_behind(held_ids_, delta.ids);
  }
  stop(matcher_.stopped() ? FinishReason::stop : stream_.finish_reason());
  finish_reading(delta);
}

void Answer::stop(FinishReason reason) {
  AnswerEnd end;
  end.finish_reason = finish_reason(reason);
  end.stop_text = matcher_.stop_string();
  end.reason = reason;
  end.stats = stream_.stats();
  end.tokens = tokens_;
  end.reasoning_tokens = reasoning_tokens_;
  if (wants_prompt_) {
    end.prompt = stream_.prompt_logprobs();
  }
  end_ = std::move(end);
}

}  // namespace quince::server
