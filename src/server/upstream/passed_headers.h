// What of a request's and a response's head goes through the gateway. What is between two
// neighbours (RFC 9110, 7.6.1), the client's key and its cookies do not.
#pragma once

#include <string>
#include <string_view>

#include "gateway/config.h"
#include "server/http.h"
#include "server/upstream/response_reader.h"

namespace quince::server {

// False: "." or ".." between slashes, a backslash or a control character in it.
bool is_plain_path(std::string_view path);
// The whole head of the request to the upstream. length: of the body.
std::string request_head(
    const HttpRequest& request, const gateway::UpstreamConfig& upstream, size_t length);
// "GET ..." for a health check.
std::string health_head(const gateway::UpstreamConfig& upstream);
Headers response_headers(const ResponseReader& response);

}  // namespace quince::server
