// The table of routes. An alias is a row.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/app.h"

namespace quince::server {

// What stands for the "{...}" of a path, or "".
struct RouteCall {
  App& app;
  const HttpRequest& request;
  std::string argument;
};

struct Route {
  std::string_view method;
  std::string_view path;  // "/v1/models/{id}": the part may be anything, slashes included
  Response (*handle)(const RouteCall& call);  // may throw
  bool open = false;                          // needs no key
};

std::span<const Route> routes();

struct RouteMatch {
  const Route* route = nullptr;  // null: none
  std::string argument;
  std::string allowed;  // methods of that path: "GET, POST"; "": there is no such path
};
RouteMatch find_route(std::string_view method, std::string_view path);

// Handlers, by the file that has them.
Response chat_completions(const RouteCall& call);  // openai/chat.cpp
Response completions(const RouteCall& call);       // openai/completions.cpp
Response embeddings(const RouteCall& call);        // openai/embeddings.cpp
Response list_models(const RouteCall& call);       // openai/models.cpp
Response show_model(const RouteCall& call);
Response responses(const RouteCall& call);  // openai/responses.cpp
Response show_response(const RouteCall& call);
Response cancel_response(const RouteCall& call);
Response delete_response(const RouteCall& call);
Response messages(const RouteCall& call);  // anthropic/answers.cpp
Response count_tokens(const RouteCall& call);
Response llama_completion(const RouteCall& call);  // llama/completion.cpp
Response infill(const RouteCall& call);            // llama/infill.cpp
Response tokenize(const RouteCall& call);          // llama/tokens.cpp
Response detokenize(const RouteCall& call);
Response apply_template(const RouteCall& call);
Response slots(const RouteCall& call);  // llama/slots.cpp
Response slot_action(const RouteCall& call);
Response page(const RouteCall& call);  // page/page.cpp
Response page_file(const RouteCall& call);
Response openapi(const RouteCall& call);  // openapi/openapi.cpp
Response health(const RouteCall& call);   // admin/admin.cpp
Response props(const RouteCall& call);
Response version(const RouteCall& call);
Response metrics(const RouteCall& call);
Response cancel(const RouteCall& call);

}  // namespace quince::server
