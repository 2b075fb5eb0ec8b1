// Parts that OpenAI's answers have in common.
#pragma once

#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "server/generation.h"
#include "server/served_model.h"

namespace quince::server {

std::string json_text(std::string_view text);             // as a JSON string; text is UTF-8
void add_frame(std::string& out, std::string_view json);  // "data: ...\n\n"
void add_error_frame(std::string& out, const std::exception_ptr& error);

boost::json::object usage_json(const Usage& usage);
// A stream's last chunk, which tells the usage, if it was asked for, and "data: [DONE]". begin: of
// every chunk, up to its choices; it ends with "usage":null where usage is told.
void add_stream_end(std::string& out, std::string_view begin, const Usage* usage);
// llama-server's: milliseconds and rates of the prompt and of the answer.
boost::json::object timings_json(const AnswerEnd& end);
// What answers depend on besides the request.
std::string fingerprint(const ServedModel& model);

// A parameter's value, with the digits that it was given with.
boost::json::value number_json(const NumberParam& row, const SamplingParams& params);
// A log probability as JSON, which has no infinity.
double finite(float logprob);
// What log probabilities call a token. Bytes that are no whole character stand there as OpenAI
// writes them, as in \xf0: two tokens of such bytes have two names, and none is taken for a broken
// text.
std::string token_name(const Tokenizer& tokenizer, Token id);
// {"token", "logprob", "bytes"}.
boost::json::object token_json(const Tokenizer& tokenizer, Token id, float logprob);
// {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}]}.
// vLLM's: null for the first token, then for each an object by token id, the token itself and the
// likeliest others. The rank is null where it is not among these.
boost::json::array prompt_logprobs(
    const Tokenizer& tokenizer, const std::vector<GeneratedToken>& tokens);
boost::json::object chat_logprobs(
    const Tokenizer& tokenizer, const std::vector<GeneratedToken>& tokens);

}  // namespace quince::server
