// POST /tokenize, /detokenize and /apply-template, as llama-server has them; /tokenize also takes
// vLLM's "prompt" and "messages".
#include "base/json_text.h"
#include "server/errors.h"
#include "server/openai/messages.h"
#include "server/routes.h"
#include "tokenizer/utf8.h"

namespace quince::server {

namespace json = boost::json;

namespace {

Response answer(
    const json::object& object, const std::vector<std::string>& unknown, const App& app) {
  Response response{.body = compact_json(object)};
  app.note_ignored(unknown, response);
  return response;
}

json::value piece_json(const std::string& bytes) {
  if (is_valid_utf8(bytes)) {
    return json::value(bytes);
  }
  json::array list;  // part of a character
  for (const char c : bytes) {
    list.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  }
  return list;
}

}  // namespace

Response tokenize(const RouteCall& call) {
  const json::object body = parse_body(call.request.body);
  Fields fields(body);
  const auto model = call.app.model(fields.text("model").value_or(""));
  const Tokenizer& tokenizer = model->text.tokenizer;
  std::vector<Token> ids;
  if (fields.find("messages") != nullptr) {
    ids = encode_chat(parse_chat(fields, *model), *model, PromptLength::any);
  } else {
    auto text = fields.text("content");
    const bool vllm = !text.has_value();
    text = vllm ? fields.text("prompt") : text;
    if (!text) {
      throw bad_field("content", "content is missing");
    }
    refuse_long_text(text->size(), vllm ? "prompt" : "content");
    const bool special = fields.boolean("add_special").value_or(false) ||
                         fields.boolean("add_special_tokens").value_or(vllm);
    const bool parse = fields.boolean("parse_special").value_or(true);
    ids = tokenizer.encode(*text, {.parse_special = parse});
    if (special) {
      ids = raw_prompt(model->text, *text);
    }
  }
  const bool pieces = fields.boolean("with_pieces").value_or(false);
  fields.know("model");
  const auto unknown = fields.unknown();
  call.app.refuse_unknown(unknown);
  std::string tokens;  // as text: JSON values of so many would take a lot of memory
  for (const Token id : ids) {
    tokens += tokens.empty() ? "" : ",";
    tokens += pieces ? fmt::format(
                           R"({{"id":{},"piece":{}}})",
                           id,
                           json::serialize(piece_json(tokenizer.token_bytes(id))))
                     : std::to_string(id);
  }
  Response response{
      .body = fmt::format(
          R"({{"tokens":[{}],"count":{},"max_model_len":{}}})",
          tokens,
          ids.size(),
          model->engine->context_length())};
  call.app.note_ignored(unknown, response);
  return response;
}

Response detokenize(const RouteCall& call) {
  const json::object body = parse_body(call.request.body);
  Fields fields(body);
  const auto model = call.app.model(fields.text("model").value_or(""));
  const json::array* list = fields.array("tokens");
  if (list == nullptr) {
    throw bad_field("tokens", "tokens is missing");
  }
  if (list->size() > kMostTokens) {
    throw ApiError(
        400,
        "invalid_request_error",
        fmt::format(
            "tokens holds {} of them, and at most {} are turned into text at once: send them in "
            "parts",
            list->size(),
            kMostTokens),
        "tokens",
        "array_above_max_length");
  }
  std::vector<Token> ids;
  for (const json::value& value : *list) {
    if (!value.is_int64() || value.get_int64() < 0 ||
        value.get_int64() >= model->engine->info().vocab_size) {
      throw bad_field("tokens", "tokens holds {}, want token ids", shown(value));
    }
    ids.push_back(static_cast<Token>(value.get_int64()));
  }
  const auto unknown = fields.unknown();
  call.app.refuse_unknown(unknown);
  const std::string text = model->text.tokenizer.decode(ids, {.skip_special = false});
  return answer({{"content", text}, {"prompt", text}}, unknown, call.app);
}

Response apply_template(const RouteCall& call) {
  const json::object body = parse_body(call.request.body);
  Fields fields(body);
  const auto model = call.app.model(fields.text("model").value_or(""));
  const ChatPrompt chat = parse_chat(fields, *model);
  const auto unknown = fields.unknown();
  call.app.refuse_unknown(unknown);
  const std::string prompt = model->text.chat_template->render(chat.shown(), chat.render);
  refuse_long_text(prompt.size(), chat.names.messages);
  return answer({{"prompt", prompt}}, unknown, call.app);
}

}  // namespace quince::server
