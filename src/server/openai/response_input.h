// The Responses API's request as that of /v1/chat/completions.
#pragma once

#include <boost/json.hpp>

#include "server/fields.h"

namespace quince::server {

// before: the conversation that the request goes on with. Throws ApiError 400 naming the field.
boost::json::object response_to_chat(
    const boost::json::object& body, const boost::json::array& before);

}  // namespace quince::server
