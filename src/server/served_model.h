// A model as the server knows it. Immutable but for its engine; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "chat/text_side.h"
#include "engine/engine.h"
#include "server/prompt_bound.h"

namespace quince::server {

struct ServedModel {
  explicit ServedModel(TextSide text) : text(std::move(text)) {}

  std::string id;                    // what clients call it
  std::vector<std::string> aliases;  // other names; "*": any
  std::string source;                // where it came from
  int64_t created = 0;               // seconds since 1970
  TextSide text;
  SamplingParams sampling;  // of requests that say nothing else; with end_tokens
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};  // as in llama.cpp
  boost::json::object template_values;  // chat_template_kwargs of requests that say nothing else
  std::unique_ptr<Engine> engine;
  Pooling pooling = Pooling::last;  // of embeddings
  int reasoning_budget = -1;        // tokens, of requests that say nothing else; -1: no limit
  int parallel = 1;                 // sequences that advance together
  int most_answers = 0;             // that may run and wait; 0: not known
  TokenBound token_bound;
};

}  // namespace quince::server
