// JSON as people and other programs like to read it: numbers as 100000.0 and 0.001 rather than 1E5
// and 1E-3, and, in the pretty form, one item a line. Any thread.
#pragma once

#include <string>

#include <boost/json.hpp>

namespace quince {

std::string compact_json(
    const boost::json::value& value);                      // one line, without a newline at its end
std::string pretty_json(const boost::json::value& value);  // indented, newline at its end

}  // namespace quince
