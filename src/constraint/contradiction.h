// What can be told of a JSON schema without compiling it: that no value fits, because two of its
// bounds exclude each other.
#pragma once

#include <optional>
#include <string>

#include <boost/json/fwd.hpp>

namespace quince {

// "x: y: nothing fits: minLength is 5 and maxLength 2", for the schema itself and whatever a value
// that fits must have. Nothing: there may be other reasons. Thread-safe; as deep as the schema.
std::optional<std::string> contradiction(const boost::json::value& schema);

}  // namespace quince
