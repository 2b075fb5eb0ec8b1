#include "server/routes.h"

namespace quince::server {

namespace {

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", chat_completions},
    {"POST", "/chat/completions", chat_completions},
    {"POST", "/v1/completions", completions},
    {"POST", "/v1/embeddings", embeddings},
    {"GET", "/v1/models", list_models},
    {"GET", "/models", list_models},
    {"GET", "/v1/models/{id}", show_model},
    {"POST", "/v1/responses", responses},
    {"POST", "/v1/responses/{id}/cancel", cancel_response},
    {"GET", "/v1/responses/{id}", show_response},
    {"DELETE", "/v1/responses/{id}", delete_response},
    {"POST", "/v1/messages", messages},
    {"POST", "/v1/messages/count_tokens", count_tokens},
    {"POST", "/completion", llama_completion},
    {"POST", "/completions", llama_completion},
    {"POST", "/infill", infill},
    {"POST", "/tokenize", tokenize},
    {"POST", "/detokenize", detokenize},
    {"POST", "/apply-template", apply_template},
    {"POST", "/v1/cancel/{id}", cancel},
    {"GET", "/health", health, true},
    {"GET", "/v1/health", health, true},
    {"GET", "/props", props},
    {"GET", "/slots", slots},
    {"POST", "/slots/{id}", slot_action},
    {"GET", "/version", version},
    {"GET", "/metrics", metrics},
    {"GET", "/openapi.json", openapi, true},
    {"GET", "/", page, true},
    {"GET", "/page/{file}", page_file, true},
};

// Sets argument to what the pattern's last part stands for.
bool matches(std::string_view pattern, std::string_view path, std::string& argument) {
  const size_t brace = pattern.find('{');
  if (brace == std::string_view::npos) {
    return pattern == path ||
           (path.size() == pattern.size() + 1 && path.ends_with('/') && path.starts_with(pattern));
  }
  const std::string_view before = pattern.substr(0, brace);
  const std::string_view after = pattern.substr(pattern.find('}') + 1);
  if (path.size() <= before.size() + after.size() || !path.starts_with(before) ||
      !path.ends_with(after)) {
    return false;
  }
  argument = path.substr(brace, path.size() - before.size() - after.size());
  return true;
}

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

RouteMatch find_route(std::string_view method, std::string_view path) {
  RouteMatch match;
  for (const Route& route : kRoutes) {
    std::string argument;
    if (!matches(route.path, path, argument)) {
      continue;
    }
    match.allowed += (match.allowed.empty() ? "" : ", ") + std::string(route.method);
    if (route.method == method || (route.method == "GET" && method == "HEAD")) {
      match.route = &route;
      match.argument = argument;
    }
  }
  return match;
}

}  // namespace quince::server
