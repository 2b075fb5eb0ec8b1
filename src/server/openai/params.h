// The fields that say how an answer is generated, the same ones for every route: the union of
// OpenAI's, llama.cpp's and vLLM's. A field that is known and cannot be is an ApiError 400.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/answer_reader.h"
#include "engine/engine.h"
#include "server/fields.h"
#include "server/served_model.h"

namespace quince::server {

struct GenerationParams {
  SamplingParams sampling;
  std::vector<std::string> stops;
  bool include_stop = false;  // the stop text is part of the answer
  bool skip_special = true;   // special tokens leave no text
  int n = 1;                  // answers
  int best_of = 1;            // of so many, the likeliest ones
  int truncate_prompt = 0;    // keep only so many of its last tokens; 0: all
  bool stream = false;
  bool include_usage = false;  // in a stream
  RequestOptions options;
  std::optional<int> slot;                    // that it is to run in; absent: any
  std::string form_field;                     // that sampling.constraint came of
  std::string prompt_field = "prompt";        // that the prompt came of
  std::optional<AnswerReaderOptions> reader;  // absent: what is written is the answer
  bool one_call = false;                      // the answer ends with its first tool call
};

// Other names of numbers among the sampling parameters: theirs, ours.
std::span<const std::pair<std::string_view, std::string_view>> number_aliases();

// Does not look at logprobs, top_logprobs and n_probs: the routes differ in them.
GenerationParams parse_generation(Fields& fields, const ServedModel& model);

// Of routes that give all answers they make. Throws ApiError 400.
void refuse_best_of(const GenerationParams& params);

}  // namespace quince::server
