// GET /slots, and POST /slots/{id}?action=save|restore|erase, as llama-server has them.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

#include "base/json_text.h"
#include "server/errors.h"
#include "server/fields.h"
#include "server/routes.h"

namespace quince::server {

namespace json = boost::json;

namespace {

std::optional<SlotAction::Kind> kind_of(std::string_view name) {
  using Kind = SlotAction::Kind;
  return name == "save"      ? std::optional(Kind::save)
         : name == "restore" ? std::optional(Kind::restore)
         : name == "erase"   ? std::optional(Kind::erase)
                             : std::nullopt;
}

int parse_slot(const std::string& text, int count) {
  int slot = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slot);
  if (error != std::errc() || end != text.data() + text.size() || slot < 0 || slot >= count) {
    throw bad_field(
        "id_slot", "there is no slot {}, want 0 to {}", shown(json::value(text)), count - 1);
  }
  return slot;
}

// A slot's answer that runs. Prompts are not told.
json::object running_slot(const ActiveRequest& request, size_t answer) {
  const GenerationStats stats = request.streams[answer].stats();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - request.started;
  return {
      {"id_task", request.id},
      {"route", request.route},
      {"is_processing", true},
      {"answer", answer},
      {"n_prompt_tokens", stats.prompt_tokens},
      {"n_prompt_tokens_cached", stats.cached_tokens},
      {"n_decoded", stats.generated_tokens},
      {"seconds", seconds.count()}};
}

}  // namespace

// One object for each sequence that could run. Who waits is not told of. Two that asked for the
// same slot are shown in two places.
Response slots(const RouteCall& call) {
  if (!call.app.options().slots) {
    throw ApiError(501, "not_supported_error", "/slots is switched off (--no-slots)");
  }
  const auto model = call.app.model("");
  const auto places = call.app.slots();
  std::vector<json::object> list(static_cast<size_t>(places->count()));
  for (const auto& request : call.app.active().list()) {
    for (size_t i = 0; i < request->streams.size(); ++i) {
      const TokenStream& stream = request->streams[i];
      if (!stream.stats().begun || stream.finish_reason() != FinishReason::none) {
        continue;
      }
      auto place = list.begin() + request->slots.at(i);
      if (!place->empty()) {
        place = std::ranges::find_if(list, &json::object::empty);
      }
      if (place != list.end()) {
        *place = running_slot(*request, i);
      }
    }
  }
  json::array out;
  for (json::object& slot : list) {
    const auto id = static_cast<int>(out.size());
    json::object told{
        {"id", id},
        {"n_ctx", model->engine->context_length()},
        {"is_processing", false},
        {"n_tokens", places->token_count(id)}};
    for (auto& [name, value] : slot) {
      told[name] = std::move(value);
    }
    out.push_back(std::move(told));
  }
  const EngineStats stats = model->engine->stats();
  if (call.request.parameter("fail_on_no_slot").value_or("0") == "1" &&
      stats.running + stats.waiting >= model->parallel) {
    throw ApiError(503, "overloaded_error", "no slot is free");
  }
  return {.body = compact_json(out)};
}

Response slot_action(const RouteCall& call) {
  SlotAction action;
  action.folder = call.app.options().slot_folder;
  if (action.folder.empty()) {
    throw ApiError(
        501,
        "not_supported_error",
        "this server does not save slots: start it with --slot-save-path DIR");
  }
  const auto model = call.app.model("");
  const auto places = call.app.slots();
  action.slot = parse_slot(call.argument, places->count());
  const std::string name = call.request.parameter("action").value_or("");
  const auto kind = kind_of(name);
  if (!kind) {
    throw bad_field(
        "action", "action is {}, want save, restore or erase", shown(json::value(name)));
  }
  action.kind = *kind;
  std::vector<std::string> unknown;
  if (action.kind != SlotAction::Kind::erase || !call.request.body.empty()) {
    const json::object body = parse_body(call.request.body);
    Fields fields(body);
    const auto file = fields.text("filename");
    if (!file && action.kind != SlotAction::Kind::erase) {
      throw bad_field("filename", "filename is missing");
    }
    action.file_name = file.value_or("");
    unknown = fields.unknown();
    call.app.refuse_unknown(unknown);
  }
  if (action.kind != SlotAction::Kind::erase) {
    check_slot_file_name(action.file_name);
  }
  Response response;
  call.app.note_ignored(unknown, response);
  response.pending = call.app.slot_actions().add(std::move(action), model, places);
  return response;
}

}  // namespace quince::server
