// The document at /openapi.json: openapi.json beside this file, and what other tables know better:
// aliases among the routes, the numbers of sampling and what they may be, the version. A test holds
// it to the routes and to the fields that are read.
#pragma once

#include <string_view>

#include <boost/json.hpp>

namespace quince::server {

boost::json::object openapi_document(std::string_view version);

}  // namespace quince::server
