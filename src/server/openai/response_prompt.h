// What /v1/responses has beside chat's fields: truncation and include.
#pragma once

#include <string>
#include <vector>

#include <boost/json.hpp>

#include "server/fields.h"
#include "server/openai/messages.h"
#include "server/openai/params.h"
#include "server/served_model.h"

namespace quince::server {

// "auto": the oldest turns of a conversation that is too long are left out, as many as must be for
// the answer to have room: max_tokens, but no more than half of the context; an eighth of it where
// no number is given. The system's messages and the last turn stay. false: "disabled", or nothing.
bool parse_truncation(Fields& fields);

// body: the request in chat's form. chat: what parse_chat made of it. Throws ApiError 400
// context_length_exceeded where not even the last turn fits.
std::vector<Token> truncated_prompt(
    const boost::json::object& body,
    const ChatPrompt& chat,
    const ServedModel& model,
    int max_tokens);

// "message.output_text.logprobs" turns log probabilities on, with the field top_logprobs of body.
// What else OpenAI knows belongs to tools that are not here: it is returned, to be listed as
// ignored. A value nobody knows is an ApiError 400.
std::vector<std::string> parse_include(Fields& fields, Fields& body, SamplingParams& sampling);

}  // namespace quince::server
