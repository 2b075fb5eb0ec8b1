// The text of HTTP: what needs no socket.
#pragma once

#include <string>
#include <string_view>

#include "server/http.h"

namespace quince::server {

bool same_word(std::string_view a, std::string_view b);  // in any letter case
// "%20" becomes a space; broken escapes stay as they are. plus: "+" is a space, as in a query.
std::string percent_decoded(std::string_view text, bool plus);
// A request's target without scheme and host, as proxies write them: "http://host/a?b" is "/a?b".
std::string_view origin_form(std::string_view target);
std::string_view reason_phrase(int status);

enum class Framing { length, chunked, until_close };
// Status line and headers with the empty line at their end. Line breaks in values become spaces.
std::string response_head(const Response& response, Framing framing, bool keep_alive);
std::string chunk_head(size_t bytes);  // "1f\r\n"

}  // namespace quince::server
