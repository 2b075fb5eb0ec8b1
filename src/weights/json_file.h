// JSON texts that come with models: untrusted, so bounded in size and depth. Errors are UserErrors
// that name the source.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json.hpp>

namespace quince {

struct JsonLimits {
  size_t max_depth = 64;
  bool unique_keys =
      false;  // a key that comes twice in one object is an error, not "the last wins"
};

// source: named in errors, a path as a rule.
boost::json::value parse_json(
    std::string_view text, std::string_view source, JsonLimits limits = {});
boost::json::object parse_json_object(
    std::string_view text, std::string_view source, JsonLimits limits = {});

// Whole text of a regular file. Throws UserError when it is missing, unreadable or over max_bytes.
std::string read_text_file(const std::filesystem::path& path, size_t max_bytes);
// Nothing when the file does not exist.
std::optional<std::string> read_text_file_if_any(
    const std::filesystem::path& path, size_t max_bytes);

// Typed look-ups for configuration objects. A missing key and null are nothing; a value of another
// type or out of range is a UserError "<source>: <key> is <value>, want <what>".
std::optional<int64_t> json_int(
    const boost::json::object& object, std::string_view key, std::string_view source);
std::optional<std::string> json_string(
    const boost::json::object& object, std::string_view key, std::string_view source);

}  // namespace quince
