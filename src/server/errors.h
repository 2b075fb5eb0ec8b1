// What goes wrong, as clients are told. Handlers throw; what became of it in HTTP's and the APIs'
// terms is decided here and nowhere else.
#pragma once

#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "server/http.h"

namespace quince::server {

// Zero bytes end what() for good, so they are written as \0.
std::string without_zeros(std::string message);

// An error that knows its status. param: the field at fault, or "".
class ApiError : public std::runtime_error {
 public:
  ApiError(
      int status,
      std::string type,
      const std::string& message,
      std::string param = "",
      std::string code = "")
      : std::runtime_error(without_zeros(message)),
        status(status),
        type(std::move(type)),
        param(std::move(param)),
        code(std::move(code)) {}

  int status;
  std::string type;
  std::string param;
  std::string code;
  int retry_after = 1;  // seconds, told with 429 and 503
};

// A request that cannot be answered as it is: 400.
template <typename... Values>
ApiError bad_field(std::string param, fmt::format_string<Values...> format, Values&&... values) {
  return {
      400,
      "invalid_request_error",
      fmt::format(format, std::forward<Values>(values)...),
      std::move(param),
      "invalid_value"};
}

struct ErrorReport {
  int status = 500;
  std::string type = "internal_error";
  std::string message;
  std::string param;
  std::string code;
  int retry_after = 1;  // seconds, told with 429 and 503
};

// UserError: 400, BusyError: 503; ApiError: its own; all else is ours: 500.
ErrorReport report(const std::exception_ptr& error);
// For what has no exception: 404, 405, and what HTTP itself complains about.
ErrorReport report(int status, std::string message);

// OpenAI: {"error": {"message", "type", "param", "code"}}. Anthropic: {"type": "error", "error":
// {"type", "message"}}.
enum class ErrorStyle { openai, anthropic };
ErrorStyle error_style(std::string_view path);
boost::json::object error_json(const ErrorReport& report, ErrorStyle style);
Response error_response(const ErrorReport& report, ErrorStyle style);

}  // namespace quince::server
