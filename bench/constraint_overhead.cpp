// What answers under a constraint cost: the speed of 16 of them together beside 16 free ones, and
// the time of one mask.
//   quince_constraint_overhead MODEL [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/loaded_model.h"
#include "constraint/constraint.h"

namespace quince {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRequests = 16;
constexpr int kTokens = 96;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using Answers = std::vector<std::vector<Token>>;

// Tokens a second of all together.
double run(cli::LoadedModel& model, const SamplingParams& params, Answers* answers = nullptr) {
  const auto prompt = model.text.tokenizer.encode("A list of people, in JSON:");
  const auto begin = Clock::now();
  std::vector<TokenStream> streams;
  for (int i = 0; i < kRequests; ++i) {
    SamplingParams own = params;
    own.seed = static_cast<uint64_t>(i);
    streams.push_back(model.engine->submit(prompt, own));
  }
  int64_t tokens = 0;
  for (TokenStream& stream : streams) {
    std::vector<Token> ids;
    while (const auto token = stream.next()) {
      ids.push_back(token->id);
    }
    tokens += std::ssize(ids);
    if (answers != nullptr) {
      answers->push_back(std::move(ids));
    }
  }
  return static_cast<double>(tokens) / seconds_since(begin);
}

// Consuming a token and making the next mask, as the worker does it, over the tokens of the
// answers.
void time_masks(cli::LoadedModel& model, const ConstraintSpec& spec, const Answers& answers) {
  const int vocab = model.engine->info().vocab_size;
  ConstraintCompiler compiler(model.text.tokenizer, vocab);
  auto begin = Clock::now();
  compiler.compile({ConstraintKind::regex, "a"});
  const double tables = seconds_since(begin);
  begin = Clock::now();
  const auto constraint = compiler.compile(spec);
  const double compiled = seconds_since(begin);
  TokenBits bits((static_cast<size_t>(vocab) + 31) / 32);
  std::vector<double> times;
  for (const std::vector<Token>& answer : answers) {
    ConstraintMatcher matcher = constraint->begin();
    for (const Token token : answer) {
      begin = Clock::now();
      const auto place = matcher.consume(std::span(&token, 1));
      if (place.complete) {
        break;
      }
      if (matcher.forced().empty()) {
        matcher.mask(bits);
      }
      times.push_back(seconds_since(begin) * 1e6);
    }
  }
  std::sort(times.begin(), times.end());
  fmt::print(
      "  mask: mean {:.0f} us, median {:.0f}, 99% {:.0f}, most {:.0f}; tables {:.0f} ms, compiled "
      "in "
      "{:.1f} ms\n",
      std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size()),
      times[times.size() / 2],
      times[times.size() * 99 / 100],
      times.back(),
      tables * 1e3,
      compiled * 1e3);
}

void measure(const std::string& path, int rounds) {
  cli::LoadRequest request;
  request.model = path;
  request.quiet = true;
  cli::LoadedModel model = cli::load(request);
  model.engine->set_tokenizer(model.text.tokenizer);
  const std::pair<const char*, const char*> schemas[] = {
      {"strings", R"({"type":"array","items":{"type":"string"},"minItems":200})"},
      {"people", R"({"type":"array","minItems":50,"items":{"type":"object","properties":{
          "name":{"type":"string","minLength":1,"maxLength":30},
          "age":{"type":"integer","minimum":0,"maximum":120},
          "email":{"type":"string","pattern":"^[a-z]+@[a-z]+\\.(com|org)$"},
          "role":{"enum":["admin","editor","reader"]}},
          "required":["name","age","email","role"],"additionalProperties":false}})"}};
  SamplingParams free;
  free.max_tokens = kTokens;
  run(model, free);
  for (const auto& [name, schema] : schemas) {
    SamplingParams formed = free;
    formed.constraint = ConstraintSpec{ConstraintKind::json_schema, schema};
    Answers answers;
    run(model, formed, &answers);
    std::vector<double> speeds[2];
    std::vector<double> ratios;
    for (int round = 0; round < rounds; ++round) {
      speeds[0].push_back(run(model, free));
      speeds[1].push_back(run(model, formed));
      ratios.push_back(speeds[1].back() / speeds[0].back());
    }
    fmt::print(
        "{}: {} at once, free {:.0f} tok/s, under the schema {:.0f}: median ratio {:.3f} ({:.3f} "
        "to "
        "{:.3f}), a free step {:.2f} ms\n",
        name,
        kRequests,
        median(speeds[0]),
        median(speeds[1]),
        median(ratios),
        *std::min_element(ratios.begin(), ratios.end()),
        *std::max_element(ratios.begin(), ratios.end()),
        kRequests / median(speeds[0]) * 1e3);
    time_masks(model, *formed.constraint, answers);
  }
}

}  // namespace
}  // namespace quince

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: {} MODEL [ROUNDS]\n", argv[0]);
    return 2;
  }
  try {
    quince::measure(argv[1], argc > 2 ? std::stoi(argv[2]) : 7);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}
