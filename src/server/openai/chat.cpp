// POST /v1/chat/completions.
#include <map>
#include <utility>

#include "base/json_text.h"
#include "server/errors.h"
#include "server/openai/format.h"
#include "server/openai/messages.h"
#include "server/openai/params.h"
#include "server/routes.h"

namespace quince::server {

namespace json = boost::json;

namespace {

class ChatFormat : public AnswerFormat {
 public:
  ChatFormat(std::string id, std::shared_ptr<ServedModel> model, const GenerationParams& params)
      : id_(std::move(id)),
        model_(std::move(model)),
        created_(unix_seconds()),
        answers_(params.n),
        logprobs_(params.sampling.wants_logprobs()),
        prompt_logprobs_(params.sampling.prompt_logprobs >= 0),
        usage_(params.include_usage) {
    // Of every chunk, so that a token costs little more than its own text.
    chunk_ = fmt::format(
        R"(data: {{"id":{},"object":"chat.completion.chunk","created":{},"model":{},"system_fingerprint":{},)",
        json_text(id_),
        created_,
        json_text(model_->id),
        json_text(fingerprint(*model_)));
    if (usage_) {
      chunk_ += R"("usage":null,)";
    }
  }

  void begin(std::string& out) override {
    for (int i = 0; i < answers_; ++i) {
      choice(out, i, R"({"role":"assistant","content":""})");
    }
  }

  void delta(std::string& out, size_t answer, const Delta& delta) override {
    std::string logprobs;
    if (logprobs_) {
      logprobs = json::serialize(chat_logprobs(model_->text.tokenizer, delta.tokens));
    }
    std::string fields;
    const auto add = [&](std::string_view name, const std::string& text) {
      fields += (fields.empty() ? "\"" : ",\"") + std::string(name) + "\":" + json_text(text);
    };
    if (!delta.text.empty()) {
      add("content", delta.text);
    }
    if (!delta.reasoning.empty()) {
      add("reasoning_content", delta.reasoning);  // DeepSeek's name, and OpenRouter's
      add("reasoning", delta.reasoning);
    }
    if (!fields.empty() || (delta.calls.empty() && !logprobs.empty())) {
      choice(out, answer, "{" + fields + "}", logprobs);
      logprobs.clear();
    }
    for (const ToolCallDelta& call : delta.calls) {
      choice(out, answer, call_delta(answer, call), logprobs);
    }
  }

  void finish(std::string& out, size_t answer, const AnswerEnd& end) override {
    out.append(chunk_).append(fmt::format(
        R"("choices":[{{"index":{},"delta":{{}},"logprobs":null,"finish_reason":{}}}],"timings":{}}})",
        answer,
        json_text(end.finish_reason),
        compact_json(timings_json(end))));
    out += "\n\n";
  }

  void end(std::string& out, const Usage& usage) override {
    add_stream_end(out, chunk_, usage_ ? &usage : nullptr);
  }

  void error(std::string& out, const std::exception_ptr& error) override {
    add_error_frame(out, error);
  }

  Response whole(
      std::vector<Delta> deltas, const std::vector<AnswerEnd>& ends, const Usage& usage) override {
    json::array choices;
    for (size_t i = 0; i < deltas.size(); ++i) {
      json::object choice{
          {"index", i},
          {"message", message(i, deltas[i])},
          {"logprobs", nullptr},
          {"finish_reason", ends[i].finish_reason}};
      if (logprobs_) {
        choice["logprobs"] = chat_logprobs(model_->text.tokenizer, deltas[i].tokens);
      }
      choices.push_back(std::move(choice));
    }
    json::object body{
        {"id", id_},
        {"object", "chat.completion"},
        {"created", created_},
        {"model", model_->id},
        {"system_fingerprint", fingerprint(*model_)},
        {"choices", std::move(choices)},
        {"usage", usage_json(usage)},
        {"timings", timings_json(ends.front())}};
    if (prompt_logprobs_) {
      body["prompt_logprobs"] = prompt_logprobs(model_->text.tokenizer, ends.front().prompt);
    }
    return {.body = compact_json(body)};
  }

 private:
  json::object message(size_t answer, const Delta& delta) {
    json::object message{{"role", "assistant"}, {"content", delta.text}, {"refusal", nullptr}};
    if (!delta.reasoning.empty()) {
      message["reasoning_content"] = delta.reasoning;
      message["reasoning"] = delta.reasoning;
    }
    if (!delta.calls.empty()) {
      json::array calls;
      for (const ToolCallDelta& call : delta.calls) {
        calls.push_back(json::object{
            {"id", call_id(answer, call.index)},
            {"type", "function"},
            {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
      }
      message["tool_calls"] = std::move(calls);
      if (delta.text.empty()) {
        message["content"] = nullptr;
      }
    }
    return message;
  }

  // Id, type and name once, then pieces of the arguments.
  std::string call_delta(size_t answer, const ToolCallDelta& call) {
    if (call.name.empty()) {
      return fmt::format(
          R"({{"tool_calls":[{{"index":{},"function":{{"arguments":{}}}}}]}})",
          call.index,
          json_text(call.arguments));
    }
    return fmt::format(
        R"({{"tool_calls":[{{"index":{},"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}}]}})",
        call.index,
        json_text(call_id(answer, call.index)),
        json_text(call.name),
        json_text(call.arguments));
  }

  const std::string& call_id(size_t answer, int index) {
    std::string& id = call_ids_[{answer, index}];
    if (id.empty()) {
      id = new_id("call_");
    }
    return id;
  }

  void choice(
      std::string& out, size_t answer, std::string_view delta, std::string_view logprobs = "") {
    out.append(chunk_).append(R"("choices":[{"index":)").append(std::to_string(answer));
    out.append(R"(,"delta":)").append(delta).append(R"(,"logprobs":)");
    out.append(logprobs.empty() ? "null" : logprobs)
        .append(R"(,"finish_reason":null}]})")
        .append("\n\n");
  }

  std::string id_;
  std::shared_ptr<ServedModel> model_;
  int64_t created_;
  int answers_;
  bool logprobs_;
  bool prompt_logprobs_;
  bool usage_;
  std::string chunk_;
  std::map<std::pair<size_t, int>, std::string> call_ids_;  // by answer and call
};

void parse_logprobs(Fields& fields, SamplingParams& sampling) {
  sampling.logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, 1000, "a whole number from 0 to 1000");
  if (top && *top > 0 && !sampling.logprobs) {
    throw bad_field("top_logprobs", "top_logprobs is {}: it needs \"logprobs\": true", *top);
  }
  sampling.top_logprobs = static_cast<int>(top.value_or(0));
}

}  // namespace

Response chat_completions(const RouteCall& call) {
  const json::object body = parse_body(call.request.body);
  Fields fields(body);
  const auto model = call.app.model(fields.text("model").value_or(""));
  GenerationRequest request;
  request.model = model;
  request.params = parse_generation(fields, *model);
  parse_logprobs(fields, request.params.sampling);
  refuse_best_of(request.params);
  const ChatPrompt chat = parse_chat(fields, *model);
  const auto unknown = fields.unknown();
  call.app.refuse_unknown(unknown);
  const bool cut = request.params.truncate_prompt > 0;
  request.prompts = {encode_chat(chat, *model, cut ? PromptLength::any : PromptLength::fits)};
  prepare_reading(chat, request.prompts.front(), *model, request.params);
  request.id = new_id("chatcmpl-");
  request.format = std::make_unique<ChatFormat>(request.id, model, request.params);
  Response response = call.app.generate(std::move(request), call.request);
  call.app.note_ignored(unknown, response);
  return response;
}

}  // namespace quince::server
