// Anthropic's request as OpenAI's: messages with blocks become messages that chat templates know.
#pragma once

#include <boost/json.hpp>

#include "server/fields.h"

namespace quince::server {

// The body of /v1/messages as that of /v1/chat/completions. Throws ApiError 400 naming the field.
boost::json::object to_openai(const boost::json::object& body);

}  // namespace quince::server
