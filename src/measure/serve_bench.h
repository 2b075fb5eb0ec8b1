// A load generator on the engine: many clients with prompts and answers of given lengths, and what
// they see of it: time to the first token, gaps between tokens, throughput. Tokens are random, end
// tokens are ignored, so that the work is the same in every run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace quince {

struct LengthRange {  // uniform in [low, high]
  int low = 0;
  int high = 0;
};

struct ServeLoad {
  int requests = 64;
  int clients = 16;  // requests in flight at most
  double rate = 0;   // arrivals a second (Poisson); 0: each client sends as soon as it is free
  LengthRange prompt{128, 128};
  LengthRange output{64, 64};
  int shared_prefix = 0;  // first tokens of all prompts that are equal
  uint64_t seed = 1;
  std::function<void()> check;  // called now and then; throws to stop
};

struct Percentiles {  // of seconds
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};
Percentiles percentiles(std::vector<double> values);

struct ServeResult {
  int completed = 0;
  int failed = 0;
  std::string first_error;
  double seconds = 0;  // first submission until last token
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  Percentiles first_token;  // from the moment a request was due
  Percentiles gap;          // between tokens of one request
  Percentiles request;      // due until its last token
  EngineStats engine;

  double output_per_second() const {
    return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0;
  }
};

// Throws UserError when the lengths do not fit into the model's context.
ServeResult run_load(Engine& engine, const ServeLoad& load);

}  // namespace quince
