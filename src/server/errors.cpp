#include "server/errors.h"

#include <new>

#include "base/error.h"
#include "engine/engine.h"
#include "tokenizer/utf8.h"

namespace quince::server {

namespace {

// As OpenAI names them.
std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 502:
    case 504:
      return "upstream_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "internal_error" : "invalid_request_error";
  }
}

// Anthropic's set.
std::string_view anthropic_type(const ErrorReport& report) {
  switch (report.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return report.status >= 500 ? "api_error" : "invalid_request_error";
  }
}

boost::json::value text_or_null(const std::string& text) {
  return text.empty() ? boost::json::value(nullptr) : boost::json::value(text);
}

}  // namespace

std::string without_zeros(std::string message) {
  for (size_t at = 0; (at = message.find('\0', at)) != std::string::npos;) {
    message.replace(at, 1, "\\0");
  }
  return message;
}

ErrorReport report(int status, std::string message) {
  return {status, std::string(error_type(status)), std::move(message), "", "", 1};
}

ErrorReport report(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ApiError& e) {
    return {e.status, e.type, e.what(), e.param, e.code, e.retry_after};
  } catch (const BusyError& e) {
    return report(503, e.what());
  } catch (const UserError& e) {
    return report(400, e.what());
  } catch (const std::bad_alloc&) {
    return report(503, "there is too little memory for this request");
  } catch (const std::exception& e) {
    return report(500, std::string("internal error: ") + e.what());
  } catch (...) {
    return report(500, "internal error");
  }
}

ErrorStyle error_style(std::string_view path) {
  return path.starts_with("/v1/messages") ? ErrorStyle::anthropic : ErrorStyle::openai;
}

boost::json::object error_json(const ErrorReport& report, ErrorStyle style) {
  std::string message = to_valid_utf8(report.message);
  if (style == ErrorStyle::anthropic) {
    if (report.code == "context_length_exceeded") {
      message.insert(0, "prompt is too long: ");  // there are no codes: clients look for this
    }
    return {{"type", "error"}, {"error", {{"type", anthropic_type(report)}, {"message", message}}}};
  }
  return {
      {"error",
       {{"message", message},
        {"type", report.type},
        {"param", text_or_null(to_valid_utf8(report.param))},
        {"code", text_or_null(report.code)}}}};
}

Response error_response(const ErrorReport& report, ErrorStyle style) {
  Response response;
  response.status = report.status;
  response.body = boost::json::serialize(error_json(report, style));
  if (report.status == 429 || report.status == 503) {
    response.headers.emplace_back("Retry-After", std::to_string(report.retry_after));
  }
  if (report.status == 401) {
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  }
  return response;
}

}  // namespace quince::server
