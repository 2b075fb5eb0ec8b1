#include "server/openai/format.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "server/errors.h"
#include "tokenizer/utf8.h"

namespace quince::server {

namespace json = boost::json;

std::string json_text(std::string_view text) {
  return json::serialize(json::string_view(text));
}

void add_frame(std::string& out, std::string_view json) {
  out.append("data: ").append(json).append("\n\n");
}

void add_error_frame(std::string& out, const std::exception_ptr& error) {
  add_frame(out, json::serialize(error_json(report(error), ErrorStyle::openai)));
}

json::object usage_json(const Usage& usage) {
  return {
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
      {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

json::object timings_json(const AnswerEnd& end) {
  const GenerationStats& stats = end.stats;
  const int computed = std::max(0, stats.prompt_tokens - stats.cached_tokens);
  const auto per = [](double a, double b) { return b > 0 ? a / b : 0.0; };
  const int after_first = std::max(0, end.tokens - 1);  // the first belongs to the prompt
  return {
      {"cache_n", stats.cached_tokens},
      {"prompt_n", computed},
      {"prompt_ms", stats.prompt_seconds * 1e3},
      {"prompt_per_token_ms", per(stats.prompt_seconds * 1e3, computed)},
      {"prompt_per_second", per(computed, stats.prompt_seconds)},
      {"predicted_n", end.tokens},
      {"predicted_ms", stats.generation_seconds * 1e3},
      {"predicted_per_token_ms", per(stats.generation_seconds * 1e3, after_first)},
      {"predicted_per_second", per(after_first, stats.generation_seconds)},
      {"queue_ms", stats.queue_seconds * 1e3}};
}

std::string fingerprint(const ServedModel& model) {
  const ModelInfo& info = model.engine->info();
  const size_t hash = std::hash<std::string>()(fmt::format(
      "{} {} {} {} {}",
      model.source,
      info.model_type,
      info.parameters,
      info.weight_bytes,
      model.text.template_text));
  return fmt::format("fp_{:012x}", hash & 0xffffffffffff);
}

void add_stream_end(std::string& out, std::string_view begin, const Usage* usage) {
  if (usage != nullptr) {
    begin.remove_suffix(std::string_view(R"("usage":null,)").size());
    out.append(begin).append(R"("choices":[],"usage":)");
    out.append(json::serialize(usage_json(*usage))).append("}\n\n");
  }
  out += "data: [DONE]\n\n";
}

json::value number_json(const NumberParam& row, const SamplingParams& params) {
  const double value = row.get(params);
  return row.whole() ? json::value(static_cast<int64_t>(value))
                     : json::value(std::stod(fmt::format("{:.7g}", value)));
}

double finite(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

std::string token_name(const Tokenizer& tokenizer, Token id) {
  const std::string raw = tokenizer.token_bytes(id);
  if (is_valid_utf8(raw)) {
    return raw;
  }
  std::string out;
  for (size_t at = 0; at < raw.size();) {
    size_t size = 1;
    while (size <= 4 && !is_valid_utf8(std::string_view(raw).substr(at, size))) {
      ++size;
    }
    if (size <= 4) {
      out += raw.substr(at, size);
      at += size;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(raw[at++]));
    }
  }
  return out;
}

json::object token_json(const Tokenizer& tokenizer, Token id, float logprob) {
  const std::string raw = tokenizer.token_bytes(id);
  json::array bytes;
  for (const char c : raw) {
    bytes.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  }
  return {{"token", token_name(tokenizer, id)}, {"logprob", finite(logprob)}, {"bytes", bytes}};
}

json::object chat_logprobs(const Tokenizer& tokenizer, const std::vector<GeneratedToken>& tokens) {
  json::array content;
  for (const GeneratedToken& token : tokens) {
    json::object entry = token_json(tokenizer, token.id, token.logprob);
    json::array top;
    for (const TokenLogprob& other : token.top) {
      top.push_back(token_json(tokenizer, other.id, other.logprob));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json::array prompt_logprobs(const Tokenizer& tokenizer, const std::vector<GeneratedToken>& tokens) {
  json::array out{nullptr};
  const auto entry = [&](Token id, float logprob, json::value rank) {
    return json::object{
        {"logprob", finite(logprob)},
        {"rank", std::move(rank)},
        {"decoded_token", token_name(tokenizer, id)}};
  };
  for (const GeneratedToken& token : tokens) {
    json::object one;
    one[std::to_string(token.id)] = entry(token.id, token.logprob, nullptr);
    for (size_t i = 0; i < token.top.size(); ++i) {
      const TokenLogprob& other = token.top[i];
      one[std::to_string(other.id)] = entry(other.id, other.logprob, i + 1);
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace quince::server
