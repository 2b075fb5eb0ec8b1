#include "server/openai/response_prompt.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "server/errors.h"

namespace quince::server {

namespace json = boost::json;

namespace {

constexpr std::string_view kLogprobs = "message.output_text.logprobs";
constexpr std::array<std::string_view, 7> kElsewhere = {
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results"};

// Nothing: it has more tokens than that.
std::optional<std::vector<Token>> prompt_of(
    const ChatPrompt& chat, const ServedModel& model, size_t most) {
  try {
    std::vector<Token> ids = encode_chat(chat, model);
    if (ids.size() <= most) {
      return ids;
    }
  } catch (const ApiError& error) {
    if (error.code != "context_length_exceeded") {
      throw;
    }
  }
  return std::nullopt;
}

std::string_view role_of(const json::value& message) {
  const json::value* role = message.as_object().if_contains("role");
  return role != nullptr && role->is_string() ? std::string_view(role->get_string()) : "";
}

// Where the turns begin that may go: with what the user says.
std::vector<size_t> turns_of(const json::array& messages) {
  std::vector<size_t> turns;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (role_of(messages[i]) == "user") {
      turns.push_back(i);
    }
  }
  return turns;
}

// Without what comes before message `from`, but for what the system says.
json::array kept(const json::array& messages, size_t from) {
  json::array out;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string_view role = role_of(messages[i]);
    if (i >= from || role == "system" || role == "developer") {
      out.push_back(messages[i]);
    }
  }
  return out;
}

}  // namespace

bool parse_truncation(Fields& fields) {
  const std::string truncation = fields.text("truncation").value_or("disabled");
  if (truncation != "auto" && truncation != "disabled") {
    throw bad_field("truncation", "truncation is \"{}\", want auto or disabled", truncation);
  }
  return truncation == "auto";
}

std::vector<Token> truncated_prompt(
    const json::object& body, const ChatPrompt& chat, const ServedModel& model, int max_tokens) {
  const int context = model.engine->context_length();
  const int room = max_tokens > 0 ? std::min(max_tokens, context / 2) : context / 8;
  const auto most = static_cast<size_t>(std::max(1, context - std::max(1, room)));
  if (auto ids = prompt_of(chat, model, most)) {
    return std::move(*ids);
  }
  const json::array& messages = body.at("messages").as_array();
  const std::vector<size_t> turns = turns_of(messages);
  std::optional<std::vector<Token>> best;
  // The fewest turns that have to go: each question costs a prompt's tokens.
  size_t low = 1;
  size_t high = turns.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    json::object shorter = body;
    shorter["messages"] = kept(messages, turns[middle]);
    Fields fields(shorter);
    if (auto ids = prompt_of(parse_chat(fields, model, kResponseNames), model, most)) {
      best = std::move(ids);
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  // Else its length is said as that of any prompt.
  return best ? std::move(*best) : encode_chat(chat, model);
}

std::vector<std::string> parse_include(Fields& fields, Fields& body, SamplingParams& sampling) {
  std::vector<std::string> ignored;
  for (const std::string& value : fields.texts("include").value_or(std::vector<std::string>())) {
    if (value == kLogprobs) {
      sampling.logprobs = true;
    } else if (std::find(kElsewhere.begin(), kElsewhere.end(), value) != kElsewhere.end()) {
      ignored.push_back("include." + value);
    } else {
      throw bad_field("include", "include holds \"{}\", which is no part of a response", value);
    }
  }
  const auto top = body.integer("top_logprobs", 0, 20, "a whole number from 0 to 20");
  if (sampling.logprobs) {
    sampling.top_logprobs = static_cast<int>(top.value_or(0));
  }
  return ignored;
}

}  // namespace quince::server
