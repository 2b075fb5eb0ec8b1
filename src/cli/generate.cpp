#include "cli/generate.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace quince::cli {

GeneratedText stream_text(
    const TokenSource& next,
    const Tokenizer& tokenizer,
    const std::vector<std::string>& stops,
    const ShowText& show,
    DecodeOptions how,
    const std::function<bool()>& was_cut) {
  GeneratedText result;
  StreamDecoder decoder(tokenizer, how);
  StopMatcher matcher(stops);
  auto emit = [&](const std::string& piece) {
    if (!piece.empty()) {
      result.text += piece;
      show(piece);
    }
  };
  while (!matcher.stopped()) {
    std::optional<GeneratedToken> token = next();
    if (!token) {
      break;
    }
    result.ids.push_back(token->id);
    emit(matcher.add(decoder.add(token->id)));
    if (!std::isnan(token->logprob)) {
      result.logprobs.push_back(std::move(*token));
    }
  }
  if (!matcher.stopped()) {
    emit(matcher.add(decoder.finish(was_cut())));
  }
  if (!matcher.stopped()) {
    emit(matcher.finish());
  }
  result.stop_text = matcher.stop_string();
  return result;
}

double prompt_rate(const GenerationStats& stats) {
  int computed = stats.prompt_tokens - stats.cached_tokens;
  return stats.prompt_seconds > 0 && computed > 0 ? computed / stats.prompt_seconds : 0;
}

double generation_rate(const GenerationStats& stats) {
  // The first token belongs to the prompt's time.
  return stats.generation_seconds > 0 && stats.generated_tokens > 1
             ? (stats.generated_tokens - 1) / stats.generation_seconds
             : 0;
}

namespace {

std::string rate(double value) {
  return value <= 0 ? "" : fmt::format(" ({:.{}f} tok/s)", value, value < 10 ? 1 : 0);
}

}  // namespace

std::string speed_line(const GenerationStats& stats) {
  std::string cached =
      stats.cached_tokens > 0 ? fmt::format(", {} of them cached", stats.cached_tokens) : "";
  return fmt::format(
      "{} prompt tokens{}{}, {} generated{}, first token {:.2f} s",
      stats.prompt_tokens,
      cached,
      rate(prompt_rate(stats)),
      stats.generated_tokens,
      rate(generation_rate(stats)),
      stats.prompt_seconds);
}

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    unit++;
  }
  if (unit == 0) {
    return fmt::format("{} bytes", bytes);
  }
  return fmt::format("{:.{}f} {}", value, value < 9.95 ? 1 : 0, kUnits[unit]);
}

}  // namespace quince::cli
