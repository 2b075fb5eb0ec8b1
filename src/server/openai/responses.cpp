// POST /v1/responses, and GET, DELETE and cancel of one.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/json_text.h"
#include "server/errors.h"
#include "server/fields.h"
#include "server/openai/format.h"
#include "server/openai/messages.h"
#include "server/openai/params.h"
#include "server/openai/response_input.h"
#include "server/openai/response_prompt.h"
#include "server/openai/response_store.h"
#include "server/routes.h"

namespace quince::server {

namespace json = boost::json;

namespace {

struct ResponseOptions {
  bool streams = false;            // else its events are not written
  json::object echo;               // fields of the request that are part of the response
  json::array messages;            // of the conversation, for the store
  ResponseStore* store = nullptr;  // null: is not stored
};

json::object response_object(
    const std::string& id,
    int64_t created,
    std::string_view status,
    const std::string& model,
    json::array output,
    const json::object& echo) {
  json::object out{
      {"id", id},
      {"object", "response"},
      {"created_at", created},
      {"status", status},
      {"error", nullptr},
      {"incomplete_details", nullptr},
      {"model", model},
      {"output", std::move(output)},
      {"usage", nullptr}};
  for (const auto& [key, value] : echo) {
    out[key] = value;
  }
  return out;
}

// The response is a list of items; in a stream each begins, grows and ends before the next one.
class ResponseFormat : public AnswerFormat {
 public:
  ResponseFormat(std::string id, std::shared_ptr<ServedModel> model, ResponseOptions options)
      : id_(std::move(id)),
        model_(std::move(model)),
        created_(unix_seconds()),
        options_(std::move(options)) {}

  void begin(std::string& out) override {
    event(out, "response.created", {{"response", response("in_progress")}});
    event(out, "response.in_progress", {{"response", response("in_progress")}});
  }

  void delta(std::string& out, size_t, const Delta& delta) override {
    if (!delta.reasoning.empty()) {
      open(out, Kind::reasoning, "rs_", {{"summary", json::array()}});
      tokens_.clear();  // its mark
      text_ += delta.reasoning;
      event(out, "response.reasoning_text.delta", part({{"delta", delta.reasoning}}));
    }
    // Those of an answer's text: not of reasoning, of calls and of their marks.
    const bool elsewhere = kind_ == Kind::reasoning || kind_ == Kind::call || !delta.calls.empty();
    if (!delta.text.empty() || !elsewhere) {
      tokens_.insert(tokens_.end(), delta.tokens.begin(), delta.tokens.end());
    }
    delta.in_order(
        [&](std::string_view text) { add_text(out, text); },
        [&](const ToolCallDelta& call) { add_call(out, call); });
  }

  void finish(std::string& out, size_t, const AnswerEnd& end) override {
    if (output_.empty() && kind_ == Kind::none) {
      open_text(out);
    }
    end_ = end;
    // A call is whole when its arguments are, whatever ended the answer behind it.
    const bool whole = kind_ == Kind::call ? is_json(text_) : status() == "completed";
    close(out, whole ? "completed" : "incomplete");
  }

  bool is_list() const override {
    return true;
  }

  void end(std::string& out, const Usage& usage) override {
    const json::object whole = finished(usage);
    // There is no event of its own for one that was cancelled.
    event(
        out,
        status() == "completed" ? "response.completed" : "response.incomplete",
        {{"response", whole}});
  }

  void error(std::string& out, const std::exception_ptr& error) override {
    const ErrorReport what = report(error);
    event(
        out,
        "error",
        {{"code", what.code.empty() ? what.type : what.code},
         {"message", what.message},
         {"param", nullptr}});
  }

  Response whole(std::vector<Delta>, const std::vector<AnswerEnd>&, const Usage& usage) override {
    return {.body = compact_json(finished(usage))};
  }

 private:
  enum class Kind { none, reasoning, text, call };

  static bool is_json(std::string_view text) {
    json::parse_options options;
    options.max_depth = kMostDepth;  // as that of requests: it comes back in one
    boost::system::error_code error;
    json::parse(text, error, {}, options);
    return !error;
  }

  void add_text(std::string& out, std::string_view text) {
    open_text(out);
    text_ += text;
    const json::array logprobs = take_logprobs();
    event(out, "response.output_text.delta", part({{"delta", text}, {"logprobs", logprobs}}));
    logprobs_.insert(logprobs_.end(), logprobs.begin(), logprobs.end());
  }

  void add_call(std::string& out, const ToolCallDelta& call) {
    if (!call.name.empty()) {
      close(out);
      tokens_.clear();  // its mark
      item_ = {{"call_id", new_id("call_")}, {"name", call.name}, {"arguments", ""}};
      open(out, Kind::call, "fc_", item_);
    }
    text_ += call.arguments;
    if (!call.arguments.empty()) {
      event(
          out,
          "response.function_call_arguments.delta",
          {{"item_id", item_.at("id")},
           {"output_index", output_.size()},
           {"delta", call.arguments}});
    }
  }

  void event(std::string& out, std::string_view type, json::object fields) {
    if (!options_.streams) {
      return;
    }
    json::object event{{"type", type}, {"sequence_number", sequence_++}};
    for (auto& [key, value] : fields) {
      event[key] = std::move(value);
    }
    out.append("event: ").append(type).append("\ndata: ");
    out.append(json::serialize(event)).append("\n\n");
  }

  // Where a delta belongs.
  json::object part(json::object fields) const {
    fields["item_id"] = item_.at("id");
    fields["output_index"] = output_.size();
    fields["content_index"] = 0;
    return fields;
  }

  json::object text_part() const {
    return kind_ == Kind::reasoning ? json::object{{"type", "reasoning_text"}, {"text", text_}}
                                    : json::object{
                                          {"type", "output_text"},
                                          {"text", text_},
                                          {"annotations", json::array()},
                                          {"logprobs", logprobs_}};
  }

  json::array take_logprobs() {
    const std::vector<GeneratedToken> tokens = std::exchange(tokens_, {});
    return tokens.empty() ? json::array()
                          : chat_logprobs(model_->text.tokenizer, tokens).at("content").as_array();
  }

  void open_text(std::string& out) {
    open(out, Kind::text, "msg_", {{"role", "assistant"}, {"content", json::array()}});
  }

  void open(std::string& out, Kind kind, const char* prefix, json::object fields) {
    if (kind == kind_) {
      return;
    }
    close(out);
    kind_ = kind;
    text_.clear();
    logprobs_.clear();
    item_ = std::move(fields);
    item_["type"] = kind == Kind::reasoning ? "reasoning"
                    : kind == Kind::text    ? "message"
                                            : "function_call";
    item_["id"] = new_id(prefix);
    item_["status"] = "in_progress";
    event(out, "response.output_item.added", {{"output_index", output_.size()}, {"item", item_}});
    if (kind != Kind::call) {
      event(out, "response.content_part.added", part({{"part", text_part()}}));
    }
  }

  // Once it has ended.
  std::string_view status() const {
    return end_.reason == FinishReason::cancelled ? "cancelled"
           : end_.finish_reason == "length"       ? "incomplete"
                                                  : "completed";
  }

  // status: of the item that has grown; one that was cut is "incomplete".
  void close(std::string& out, std::string_view status = "completed") {
    if (kind_ == Kind::none) {
      return;
    }
    item_["status"] = status;
    if (kind_ == Kind::call) {
      item_["arguments"] = text_;
      event(
          out,
          "response.function_call_arguments.done",
          {{"item_id", item_.at("id")},
           {"output_index", output_.size()},
           {"name", item_.at("name")},
           {"arguments", text_}});
    } else {
      item_["content"] = json::array{text_part()};
      event(
          out,
          kind_ == Kind::text ? "response.output_text.done" : "response.reasoning_text.done",
          part({{"text", text_}, {"logprobs", logprobs_}}));
      event(out, "response.content_part.done", part({{"part", text_part()}}));
    }
    event(out, "response.output_item.done", {{"output_index", output_.size()}, {"item", item_}});
    output_.push_back(item_);
    kind_ = Kind::none;
  }

  json::object response(std::string_view status) const {
    return response_object(id_, created_, status, model_->id, output_, options_.echo);
  }

  json::object finished(const Usage& usage) {
    json::object out = response(status());
    if (status() == "incomplete") {
      out["incomplete_details"] = json::object{{"reason", "max_output_tokens"}};
    }
    out["usage"] = json::object{
        {"input_tokens", usage.prompt_tokens},
        {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
        {"output_tokens", usage.completion_tokens},
        {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
        {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
    if (options_.store != nullptr) {
      store(out);
    }
    return out;
  }

  void store(const json::object& whole) {
    json::object message{{"role", "assistant"}};
    json::string text;
    json::string reasoning;
    json::array calls;
    for (const json::value& item : output_) {
      if (item.at("type") == "message") {
        text += item.at("content").at(0).at("text").as_string();
      } else if (item.at("type") == "reasoning") {
        reasoning += item.at("content").at(0).at("text").as_string();
      } else {
        calls.push_back(json::object{
            {"id", item.at("call_id")},
            {"type", "function"},
            {"function", {{"name", item.at("name")}, {"arguments", item.at("arguments")}}}});
      }
    }
    message["content"] = std::move(text);
    if (!reasoning.empty()) {
      message["reasoning_content"] = std::move(reasoning);
    }
    if (!calls.empty()) {
      message["tool_calls"] = std::move(calls);
    }
    StoredResponse stored;
    stored.id = id_;
    stored.body = compact_json(whole);
    stored.messages = std::move(options_.messages);
    stored.messages.push_back(std::move(message));
    stored.bytes = stored.body.size() + json::serialize(stored.messages).size();
    options_.store->put(std::move(stored));
  }

  std::string id_;
  std::shared_ptr<ServedModel> model_;
  int64_t created_;
  ResponseOptions options_;
  int sequence_ = 0;
  json::array output_;  // items that are complete
  Kind kind_ = Kind::none;
  json::object item_;                   // that grows
  std::string text_;                    // of it, or its arguments
  json::array logprobs_;                // of it
  std::vector<GeneratedToken> tokens_;  // whose text is still to come
  AnswerEnd end_;
};

StoredResponse stored(const App& app, const std::string& id) {
  auto found = app.responses().get(id);
  if (!found) {
    throw ApiError(
        404,
        "not_found_error",
        fmt::format("there is no response '{}' (any more)", id),
        "id",
        "not_found");
  }
  return std::move(*found);
}

json::object echo_of(const json::object& body) {
  json::object echo;
  for (const char* name :
       {"instructions",
        "max_output_tokens",
        "metadata",
        "parallel_tool_calls",
        "previous_response_id",
        "reasoning",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_p",
        "truncation",
        "user",
        "store"}) {
    const json::value* value = body.if_contains(name);
    echo[name] = value != nullptr ? *value : json::value(nullptr);
  }
  const auto or_else = [&](const char* name, json::value value) {
    if (echo[name].is_null()) {
      echo[name] = std::move(value);
    }
  };
  or_else("tools", json::array());
  or_else("tool_choice", "auto");
  or_else("parallel_tool_calls", true);
  or_else("metadata", json::object());
  or_else("truncation", "disabled");
  or_else("store", true);
  or_else("text", json::object{{"format", {{"type", "text"}}}});
  return echo;
}

}  // namespace

Response responses(const RouteCall& call) {
  const json::object given = parse_body(call.request.body);
  Fields own(given);
  const auto previous = own.text("previous_response_id");
  const bool stores = own.boolean("store").value_or(true);
  const json::object body =
      response_to_chat(given, previous ? stored(call.app, *previous).messages : json::array());
  Fields fields(body);
  const auto model = call.app.model(fields.text("model").value_or(""));
  GenerationRequest request;
  request.model = model;
  request.params = parse_generation(fields, *model);
  if (request.params.form_field == "response_format") {
    request.params.form_field = "text.format";  // as it is called here
  }
  if (request.params.best_of > 1) {
    throw bad_field("n", "n: a response has one answer");
  }
  const std::vector<std::string> ignored = parse_include(own, fields, request.params.sampling);
  const bool truncates = parse_truncation(own);
  const ChatPrompt chat = parse_chat(fields, *model, kResponseNames);
  auto unknown = fields.unknown();
  unknown.insert(unknown.end(), ignored.begin(), ignored.end());
  call.app.refuse_unknown(unknown);
  const int room = request.params.sampling.max_tokens;
  request.prompts = {
      truncates ? truncated_prompt(body, chat, *model, room) : encode_chat(chat, *model)};
  prepare_reading(chat, request.prompts.front(), *model, request.params);
  ResponseOptions options;
  options.streams = request.params.stream;
  options.echo = echo_of(given);
  if (stores) {
    options.store = &call.app.responses();
    options.messages = chat.messages;
    // Instructions are this request's alone.
    if (own.text("instructions")) {
      options.messages.erase(options.messages.begin());
    }
  }
  request.id = new_id("resp_");
  request.format = std::make_unique<ResponseFormat>(request.id, model, std::move(options));
  Response response = call.app.generate(std::move(request), call.request);
  call.app.note_ignored(unknown, response);
  return response;
}

Response show_response(const RouteCall& call) {
  return {.body = stored(call.app, call.argument).body};
}

// What there is of it by then comes to whoever asked for it, and is kept as any other.
Response cancel_response(const RouteCall& call) {
  const auto running = call.app.active().list();
  const auto found = std::find_if(running.begin(), running.end(), [&](const auto& request) {
    return request->id == call.argument;
  });
  if (found == running.end()) {
    return show_response(call);  // it has ended
  }
  call.app.active().cancel(call.argument);
  const auto age = std::chrono::steady_clock::now() - (*found)->started;
  return {
      .body = compact_json(response_object(
          call.argument,
          unix_seconds() - std::chrono::duration_cast<std::chrono::seconds>(age).count(),
          "cancelled",
          call.app.model("")->id,
          {},
          echo_of({})))};
}

Response delete_response(const RouteCall& call) {
  stored(call.app, call.argument);
  call.app.responses().remove(call.argument);
  return {
      .body = json::serialize(
          json::object{{"id", call.argument}, {"object", "response.deleted"}, {"deleted", true}})};
}

}  // namespace quince::server
