// POST /v1/messages and /v1/messages/count_tokens.
#include <map>
#include <utility>

#include "base/json_text.h"
#include "server/anthropic/messages.h"
#include "server/fields.h"
#include "server/openai/format.h"
#include "server/openai/messages.h"
#include "server/openai/params.h"
#include "server/routes.h"

namespace quince::server {

namespace json = boost::json;

namespace {

void add_event(std::string& out, const json::object& event) {
  out.append("event: ").append(event.at("type").as_string());
  out.append("\ndata: ").append(json::serialize(event)).append("\n\n");
}

std::string_view stop_reason(const AnswerEnd& end) {
  return end.finish_reason == "tool_calls" ? "tool_use"
         : end.finish_reason == "length"   ? "max_tokens"
         : end.stop_text                   ? "stop_sequence"
                                           : "end_turn";
}

json::value stop_sequence(const AnswerEnd& end) {
  return end.stop_text && end.finish_reason == "stop" ? json::value(*end.stop_text)
                                                      : json::value(nullptr);
}

// An answer is a list of blocks; in a stream each begins, grows and ends before the next one.
class MessageFormat : public AnswerFormat {
 public:
  MessageFormat(std::string id, std::string model, bool streams)
      : id_(std::move(id)), model_(std::move(model)), streams_(streams) {}

  bool is_list() const override {
    return true;
  }

  bool begins_with_prompt_usage() const override {
    return true;
  }
  void prompt_usage(const Usage& usage) override {
    prompt_ = usage;
  }

  void begin(std::string& out) override {
    add_event(
        out,
        {{"type", "message_start"},
         {"message",
          {{"id", id_},
           {"type", "message"},
           {"role", "assistant"},
           {"model", model_},
           {"content", json::array()},
           {"stop_reason", nullptr},
           {"stop_sequence", nullptr},
           {"usage", usage_of(prompt_)}}}});
  }

  void delta(std::string& out, size_t, const Delta& delta) override {
    if (!delta.reasoning.empty()) {
      open(out, "thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
      grow(out, {{"type", "thinking_delta"}, {"thinking", delta.reasoning}});
    }
    delta.in_order(
        [&](std::string_view text) {
          open(out, "text", {{"type", "text"}, {"text", ""}});
          grow(out, {{"type", "text_delta"}, {"text", text}});
        },
        [&](const ToolCallDelta& call) {
          if (!call.name.empty()) {
            open(
                out,
                "tool" + std::to_string(call.index),
                {{"type", "tool_use"},
                 {"id", new_id("toolu_")},
                 {"name", call.name},
                 {"input", json::object()}});
          }
          if (!call.arguments.empty()) {
            grow(out, {{"type", "input_json_delta"}, {"partial_json", call.arguments}});
          }
        });
  }

  void finish(std::string& out, size_t, const AnswerEnd& end) override {
    if (blocks_ == 0 || open_ == "thinking") {  // clients look for a text, or a call
      open(out, "text", {{"type", "text"}, {"text", ""}});
    }
    close(out);
    end_ = end;
  }

  void end(std::string& out, const Usage& usage) override {
    add_event(
        out,
        {{"type", "message_delta"},
         {"delta", {{"stop_reason", stop_reason(end_)}, {"stop_sequence", stop_sequence(end_)}}},
         {"usage", usage_of(usage)}});
    add_event(out, {{"type", "message_stop"}});
  }

  void error(std::string& out, const std::exception_ptr& error) override {
    add_event(out, error_json(report(error), ErrorStyle::anthropic));
  }

  std::string keep_alive() override {
    std::string out;
    add_event(out, {{"type", "ping"}});
    return out;
  }

  ErrorStyle error_style() const override {
    return ErrorStyle::anthropic;
  }

  Response whole(
      std::vector<Delta>, const std::vector<AnswerEnd>& ends, const Usage& usage) override {
    return {
        .body = compact_json(json::object{
            {"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_},
            {"content", std::move(content_)},
            {"stop_reason", stop_reason(ends.front())},
            {"stop_sequence", stop_sequence(ends.front())},
            {"usage", usage_of(usage)}})};
  }

 private:
  // All of the prompt is in the three together.
  static json::object usage_of(const Usage& usage) {
    return {
        {"input_tokens", usage.prompt_tokens - usage.cached_tokens},
        {"cache_creation_input_tokens", 0},
        {"cache_read_input_tokens", usage.cached_tokens},
        {"output_tokens", usage.completion_tokens}};
  }

  void open(std::string& out, const std::string& what, json::object block) {
    if (what == open_) {
      return;
    }
    close(out);
    open_ = what;
    ++blocks_;
    if (!streams_) {
      content_.emplace_back(std::move(block));
      return;
    }
    add_event(
        out,
        {{"type", "content_block_start"},
         {"index", blocks_ - 1},
         {"content_block", std::move(block)}});
  }

  void grow(std::string& out, json::object delta) {
    if (!streams_) {
      for (const char* field : {"thinking", "text", "partial_json"}) {
        if (const json::value* more = delta.if_contains(field)) {
          grown_ += std::string_view(more->as_string());
        }
      }
      return;
    }
    add_event(
        out,
        {{"type", "content_block_delta"}, {"index", blocks_ - 1}, {"delta", std::move(delta)}});
  }

  void close(std::string& out) {
    const bool is_open = !std::exchange(open_, {}).empty();
    if (is_open && !streams_) {
      fill(content_.back().as_object(), std::exchange(grown_, {}));
    } else if (is_open) {
      add_event(out, {{"type", "content_block_stop"}, {"index", blocks_ - 1}});
    }
  }

  static void fill(json::object& block, const std::string& grown) {
    if (block.at("type") != "tool_use") {
      // Of its own: the object may move its texts before it looks for one.
      const std::string field(block.at("type").as_string());
      block[field] = grown;
      return;
    }
    json::parse_options options;
    options.max_depth = kMostDepth;  // what may come back in the next turn
    boost::system::error_code error;
    json::value input = json::parse(grown, error, {}, options);
    // One that was cut off has no value: it is told as it stands.
    block["input"] = error ? json::value{{"partial_json", grown}} : std::move(input);
  }

  std::string id_;
  std::string model_;
  bool streams_;         // else a list of whole blocks
  json::array content_;  // that list
  std::string grown_;    // what its last block holds
  Usage prompt_;
  int blocks_ = 0;
  std::string open_;  // what the block that grows is
  AnswerEnd end_;
};

}  // namespace

Response messages(const RouteCall& call) {
  const json::object body = to_openai(parse_body(call.request.body));
  Fields fields(body);
  const auto model = call.app.model(fields.text("model").value_or(""));
  GenerationRequest request;
  request.model = model;
  if (!fields.integer("max_tokens", 1, std::numeric_limits<int64_t>::max(), "a positive number")) {
    throw bad_field("max_tokens", "max_tokens is missing");
  }
  request.params = parse_generation(fields, *model);
  if (request.params.form_field == "response_format") {
    request.params.form_field = "output_config.format";  // as it is called here
  }
  if (request.params.best_of > 1) {
    throw bad_field("n", "n: a message has one answer");
  }
  const ChatPrompt chat = parse_chat(fields, *model, kMessageNames);
  const auto unknown = fields.unknown();
  call.app.refuse_unknown(unknown);
  request.prompts = {encode_chat(chat, *model)};
  prepare_reading(chat, request.prompts.front(), *model, request.params);
  request.id = new_id("msg_");
  request.format = std::make_unique<MessageFormat>(request.id, model->id, request.params.stream);
  Response response = call.app.generate(std::move(request), call.request);
  call.app.note_ignored(unknown, response);
  return response;
}

Response count_tokens(const RouteCall& call) {
  const json::object body = to_openai(parse_body(call.request.body));
  Fields fields(body);
  const auto model = call.app.model(fields.text("model").value_or(""));
  const ChatPrompt chat = parse_chat(fields, *model, kMessageNames);
  return {
      .body = json::serialize(
          json::object{{"input_tokens", encode_chat(chat, *model, PromptLength::any).size()}})};
}

}  // namespace quince::server
