// What a gateway must know of a request's body, which otherwise is passed on as it came.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace quince::server {

struct RequestBody {
  bool has_model = false;
  std::string model;  // the text of the top-level "model"
  // Where its value stands in the body, quotes included.
  size_t begin = 0;
  size_t end = 0;
  bool stream = false;  // "stream": true

  // The body with another model, in three parts; `quoted` must outlive them.
  std::array<std::string_view, 3> with_model(
      std::string_view body, const std::string& quoted) const {
    return {body.substr(0, begin), quoted, body.substr(end)};
  }
};

// Throws ApiError 400: no JSON object, nested too deep, or two models (whichever is then meant, a
// key could be let in for one and be answered by the other).
RequestBody read_request_body(std::string_view body);

}  // namespace quince::server
