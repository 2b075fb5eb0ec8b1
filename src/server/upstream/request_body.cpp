#include "server/upstream/request_body.h"

#include <boost/json/basic_parser_impl.hpp>

#include "base/json_events.h"
#include "server/errors.h"
#include "server/fields.h"

namespace quince::server {

namespace json = boost::json;

namespace {

// Sees all of a text and remembers what stands at the top.
class TopFields : public JsonEvents {
 public:
  bool is_object = false;
  bool is_empty = true;  // no field
  int models = 0;
  bool model_is_text = false;
  std::string model;
  bool stream = false;

  bool on_object_begin(json::error_code&) {
    is_object = is_object || depth_ == 0;
    ++depth_;
    return true;
  }
  bool on_object_end(size_t, json::error_code&) {
    --depth_;
    return true;
  }
  bool on_array_begin(json::error_code&) {
    depth_ += kInArray;
    return true;
  }
  bool on_array_end(size_t, json::error_code&) {
    depth_ -= kInArray;
    return true;
  }
  bool on_key_part(json::string_view part, size_t, json::error_code&) {
    add(key_, part);
    return true;
  }
  bool on_key(json::string_view part, size_t, json::error_code&) {
    add(key_, part);
    if (depth_ == 1) {
      is_empty = false;
      current_ = key_;
      models += current_ == "model" ? 1 : 0;
    }
    key_.clear();
    return true;
  }
  bool on_string_part(json::string_view part, size_t, json::error_code&) {
    if (at_model()) {
      model.append(part.data(), part.size());
    }
    return true;
  }
  bool on_string(json::string_view part, size_t, json::error_code&) {
    if (at_model()) {
      model.append(part.data(), part.size());
      model_is_text = true;
    }
    return true;
  }
  bool on_bool(bool value, json::error_code&) {
    stream = depth_ == 1 && current_ == "stream" ? value : stream;
    return true;
  }

 private:
  static constexpr int kInArray = 1000;  // what stands in a list is not at the top

  void add(std::string& to, json::string_view part) const {
    if (depth_ == 1) {
      to.append(part.data(), part.size());
    }
  }
  bool at_model() const {
    return depth_ == 1 && current_ == "model" && models == 1;
  }

  int depth_ = 0;
  std::string key_;
  std::string current_;  // the top-level key whose value comes
};

size_t end_of_string(std::string_view text, size_t begin) {
  size_t at = begin + 1;
  while (text[at] != '"') {
    at += text[at] == '\\' ? 2 : 1;
  }
  return at + 1;
}

size_t skip_space(std::string_view text, size_t at) {
  return text.find_first_not_of(" \t\r\n", at);
}

// Where the value of the top-level "model" stands, in text that is known to be good JSON and to
// have one that is a string.
void locate_model(std::string_view text, RequestBody& body) {
  int depth = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c != '"') {
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      ++at;
      continue;
    }
    const size_t end = end_of_string(text, at);
    const size_t next = skip_space(text, end);
    const bool is_key = depth == 1 && next != std::string_view::npos && text[next] == ':';
    // As it may be spelled with escapes.
    if (is_key && json::parse(json::string_view(text.data() + at, end - at)) == "model") {
      body.begin = skip_space(text, next + 1);
      body.end = end_of_string(text, body.begin);
      return;
    }
    at = end;
  }
}

}  // namespace

RequestBody read_request_body(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMostDepth;
  json::basic_parser<TopFields> parser(options);
  boost::system::error_code error;
  const size_t bom = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
  const size_t used = parser.write_some(false, text.data() + bom, text.size() - bom, error) + bom;
  if (!error && used < text.size()) {
    error = json::error::extra_data;
  }
  if (error == json::error::too_deep) {
    throw bad_field("", "the request's JSON is nested more than {} deep", kMostDepth);
  }
  if (error) {
    throw not_json(text, error);
  }
  const TopFields& top = parser.handler();
  if (!top.is_object) {
    throw bad_field("", "the request's body is no JSON object");
  }
  if (top.models > 1) {
    throw bad_field("model", "model is there {} times; want one", top.models);
  }
  RequestBody body;
  body.stream = top.stream;
  if (top.models == 1 && top.model_is_text) {
    body.has_model = true;
    body.model = top.model;
    locate_model(text, body);
  } else if (top.models == 0 && !top.is_empty) {
    body.names_none = true;
    body.begin = body.end = text.find('{') + 1;
  }
  return body;
}

}  // namespace quince::server
