// What a gateway must know of a request's body, which otherwise is passed on as it came.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace quince::server {

struct RequestBody {
  bool has_model = false;   // a text
  bool names_none = false;  // there is no "model" at all
  std::string model;        // the text of the top-level "model"
  // Where its value stands in the body, quotes included; without one, where it could stand.
  size_t begin = 0;
  size_t end = 0;
  bool stream = false;  // "stream": true

  // The body with another model, in three parts; they last as long as `body` and `quoted`, which is
  // changed where the body names none. Only for bodies that name one, or none at all.
  std::array<std::string_view, 3> with_model(std::string_view body, std::string& quoted) const {
    if (!has_model) {
      quoted = "\"model\":" + quoted + ",";
    }
    return {body.substr(0, begin), quoted, body.substr(end)};
  }
};

// Throws ApiError 400: no JSON object, nested too deep, or two models (whichever is then meant, a
// key could be let in for one and be answered by the other).
RequestBody read_request_body(std::string_view body);

}  // namespace quince::server
