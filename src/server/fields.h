// The fields of a request's JSON object, taken out by name and checked: a value of a wrong type or
// out of range is an ApiError 400 that names the field, the value and what is wanted. A field that
// is null counts as absent. What nobody asked for can be listed afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

namespace quince::server {

class ApiError;

inline constexpr size_t kMostDepth = 64;  // of JSON that clients send

// The body of a request, a JSON object nested at most so deep. Throws ApiError 400.
boost::json::object parse_body(std::string_view body);

// What is wrong with a body that no JSON could be read from: it is not UTF-8 (with the place), or
// it is not JSON.
ApiError not_json(std::string_view body, const boost::system::error_code& error);

// A value as messages show it: JSON, cut short.
std::string shown(const boost::json::value& value);

class Fields {
 public:
  // path: where the object stands in the request ("stream_options."); object must outlive this.
  explicit Fields(const boost::json::object& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  const boost::json::value* find(std::string_view name);  // null: absent, or null
  std::optional<double> number(std::string_view name, std::string_view wanted);
  std::optional<int64_t> integer(
      std::string_view name, int64_t low, int64_t high, std::string_view wanted);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string> text(std::string_view name);
  // One text or a list of texts.
  std::optional<std::vector<std::string>> texts(std::string_view name);
  const boost::json::object* object(std::string_view name);
  const boost::json::array* array(std::string_view name);

  void know(std::string_view name);  // it may be there and means nothing here
  std::vector<std::string> unknown() const;
  std::string called(std::string_view name) const {  // with its path
    return path_ + std::string(name);
  }

 private:
  const boost::json::object& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace quince::server
