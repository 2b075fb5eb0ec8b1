#include "server/openai/messages.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "chat/parsers/grammar.h"
#include "chat/tool_text.h"
#include "constraint/contradiction.h"
#include "server/errors.h"

namespace quince::server {

namespace json = boost::json;

namespace {

constexpr std::array<std::string_view, 6> kRoles = {
    "system", "developer", "user", "assistant", "tool", "function"};

// Parts of a content that are text become one, each on a line of its own.
std::string joined(const json::array& parts, const std::string& path) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", path, i);
    if (const json::string* plain = parts[i].if_string()) {
      text += (i == 0 ? "" : "\n") + std::string(*plain);
      continue;
    }
    const json::object* part = parts[i].if_object();
    if (part == nullptr) {
      throw bad_field(name, "{} is {}, want an object", name, shown(parts[i]));
    }
    Fields fields(*part, name + ".");
    const std::string type = fields.text("type").value_or("text");
    std::optional<std::string> piece = fields.text(type == "refusal" ? "refusal" : "text");
    const bool is_text =
        type == "text" || type == "input_text" || type == "output_text" || type == "refusal";
    if (!is_text) {
      throw bad_field(
          name + ".type", "{}.type is \"{}\": only text is understood here", name, type);
    }
    if (!piece) {
      throw bad_field(name + ".text", "{}.text is missing", name);
    }
    text += (i == 0 ? "" : "\n") + *piece;
  }
  return text;
}

// An object, whatever else is said of it: a call's arguments have names.
void check_parameters(const json::object& parameters, const std::string& path) {
  const json::value* type = parameters.if_contains("type");
  const json::array* types = type != nullptr ? type->if_array() : nullptr;
  const bool good =
      type == nullptr || *type == "object" ||
      (types != nullptr && std::find(types->begin(), types->end(), "object") != types->end());
  if (!good) {
    throw bad_field(
        path + ".type",
        "{}.type is {}, want \"object\": what a tool is called with is an object",
        path,
        shown(*type));
  }
}

// Arguments are a text that holds JSON, or that was meant to: a model's own mistakes come back too.
void check_arguments(const json::value& arguments, const std::string& name) {
  const json::string* text = arguments.if_string();
  if (text == nullptr) {
    return;
  }
  json::parse_options options;
  options.max_depth = kMostDepth;
  boost::system::error_code error;
  json::parse(*text, error, {}, options);
  if (error == json::error::too_deep) {
    throw bad_field(name, "{} is nested more than {} deep", name, kMostDepth);
  }
}

void check_tool_calls(const json::array& calls, const std::string& path) {
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", path, i);
    const json::object* call = calls[i].if_object();
    if (call == nullptr) {
      throw bad_field(name, "{} is {}, want an object", name, shown(calls[i]));
    }
    Fields fields(*call, name + ".");
    const json::object* function = fields.object("function");
    if (function == nullptr) {
      throw bad_field(name + ".function", "{}.function is missing", name);
    }
    Fields inner(*function, name + ".function.");
    if (!inner.text("name")) {
      throw bad_field(name + ".function.name", "{}.function.name is missing", name);
    }
    if (const json::value* arguments = inner.find("arguments")) {
      check_arguments(*arguments, name + ".function.arguments");
    }
  }
}

}  // namespace

std::string parse_content(const json::value& content, const std::string& path) {
  if (const json::array* parts = content.if_array()) {
    return joined(*parts, path);
  }
  if (!content.is_string()) {
    throw bad_field(path, "{} is {}, want a text or a list of parts", path, shown(content));
  }
  return std::string(content.get_string());
}

json::object parse_message(const json::value& value, const std::string& path) {
  const json::object* given = value.if_object();
  if (given == nullptr) {
    throw bad_field(path, "{} is {}, want an object", path, shown(value));
  }
  Fields fields(*given, path + ".");
  const std::string role = fields.text("role").value_or("");
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    throw bad_field(
        path + ".role",
        "{}.role is {}, want system, developer, user, assistant or tool",
        path,
        given->contains("role") ? shown(given->at("role")) : "missing");
  }
  json::object message = *given;
  message["role"] = role == "developer" ? "system" : role == "function" ? "tool" : role;
  const json::array* calls = fields.array("tool_calls");
  if (calls != nullptr) {
    check_tool_calls(*calls, path + ".tool_calls");
  }
  const json::value* content = fields.find("content");
  if (content == nullptr) {
    if (role != "assistant") {
      throw bad_field(path + ".content", "{}.content is missing", path);
    }
    message["content"] = "";  // many templates cannot do with less
  } else {
    message["content"] = parse_content(*content, path + ".content");
  }
  return message;
}

namespace {

// Tools of kinds that are not functions are other services' own; they are left out.
void parse_tools(Fields& fields, ChatPrompt& prompt) {
  const json::array* list = fields.array("tools");
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    const json::object* tool = list->at(i).if_object();
    if (tool == nullptr) {
      throw bad_field(path, "{} is {}, want an object", path, shown(list->at(i)));
    }
    Fields inner(*tool, path + ".");
    if (inner.text("type").value_or("function") != "function") {
      continue;
    }
    const json::object* function = inner.object("function");
    if (function == nullptr) {
      throw bad_field(path + ".function", "{}.function is missing", path);
    }
    Fields named(*function, path + ".function.");
    if (!named.text("name") || named.text("name")->empty()) {
      const std::string name = path + std::string(prompt.names.function) + ".name";
      throw bad_field(name, "{} is missing", name);
    }
    std::string schema = path + std::string(prompt.names.parameters);
    if (const json::object* parameters = named.object("parameters")) {
      check_parameters(*parameters, schema);
    }
    prompt.render.tools.push_back(*tool);
    prompt.tool_fields.push_back(std::move(schema));
  }
}

// A "none", "auto" or "required".
void choose(std::string_view word, const std::string& name, ChatPrompt& prompt) {
  if (word == "none") {
    prompt.choice = ToolChoice::none;
    prompt.render.tools.clear();
  } else if (word == "required") {
    prompt.choice = ToolChoice::required;
  } else if (word != "auto") {
    throw bad_field(name, "{} is \"{}\", want none, auto, required or a function", name, word);
  }
}

// {"type": "function", "function": {"name"}}, or flat, {"type": "function", "name"}: the tool of
// that name may be called. wanted: types that may stand there.
void allow(
    const json::object& named,
    const std::string& path,
    std::string_view wanted,
    ChatPrompt& prompt) {
  Fields choice(named, path + ".");
  const std::string type = choice.text("type").value_or("function");
  if (type != "function") {
    throw bad_field(
        path + ".type",
        "{}.type is {}, want {}: other tools cannot be called here",
        path,
        shown(json::value(type)),
        wanted);
  }
  const json::object* function = choice.object("function");
  const std::string place = function != nullptr   ? path + ".function"
                            : choice.find("name") ? path
                                                  : path + std::string(prompt.names.function);
  Fields inner(function != nullptr ? *function : named, place + ".");
  const auto name = inner.text("name");
  if (!name) {
    throw bad_field(place + ".name", "{}.name is missing: want the name of a tool", place);
  }
  const size_t before = prompt.callable.size();
  for (size_t i = 0; i < prompt.render.tools.size(); ++i) {
    const json::value& tool = prompt.render.tools[i];
    if (tool.at("function").at("name") == json::string_view(*name)) {
      prompt.callable.push_back(tool);
      prompt.callable_fields.push_back(prompt.tool_fields[i]);
    }
  }
  if (prompt.callable.size() == before) {
    throw bad_field(path, "{} names '{}', which is not among the tools", path, *name);
  }
}

void allow_none_yet(ChatPrompt& prompt) {
  prompt.callable.clear();
  prompt.callable_fields.clear();
}

// {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}, or flat, as /v1/responses has it.
// The model is told of all tools, so that what is known of the prompt stays so.
void allow_some(Fields& choice, ChatPrompt& prompt) {
  const json::object* nested = choice.object("allowed_tools");
  const std::string path = nested != nullptr ? "tool_choice.allowed_tools" : "tool_choice";
  std::optional<Fields> inner;
  if (nested != nullptr) {
    inner.emplace(*nested, path + ".");
  }
  Fields& fields = inner ? *inner : choice;
  const json::array* list = fields.array("tools");
  if (list == nullptr || list->empty()) {
    throw bad_field(path + ".tools", "{}.tools is missing or empty", path);
  }
  allow_none_yet(prompt);
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string name = fmt::format("{}.tools[{}]", path, i);
    if (!list->at(i).is_object()) {
      throw bad_field(name, "{} is {}, want an object", name, shown(list->at(i)));
    }
    allow(list->at(i).get_object(), name, "function", prompt);
  }
  const std::string mode = fields.text("mode").value_or("auto");
  if (mode != "auto" && mode != "required") {
    throw bad_field(path + ".mode", "{}.mode is \"{}\", want auto or required", path, mode);
  }
  choose(mode, path + ".mode", prompt);
}

// "none", "auto", "required", {"type": "function", "function": {"name"}}, or a choice of tools.
void parse_tool_choice(Fields& fields, ChatPrompt& prompt) {
  prompt.choice = prompt.render.tools.empty() ? ToolChoice::none : ToolChoice::automatic;
  prompt.callable = prompt.render.tools;
  prompt.callable_fields = prompt.tool_fields;
  prompt.parallel_calls = fields.boolean("parallel_tool_calls").value_or(true);
  const json::value* value = fields.find("tool_choice");
  if (value == nullptr) {
    return;
  }
  if (const json::string* word = value->if_string()) {
    choose(*word, "tool_choice", prompt);
  } else if (const json::object* object = value->if_object()) {
    Fields choice(*object, "tool_choice.");
    if (choice.text("type").value_or("function") == "allowed_tools") {
      allow_some(choice, prompt);
    } else {
      allow_none_yet(prompt);
      allow(*object, "tool_choice", "function or allowed_tools", prompt);
      prompt.choice = ToolChoice::required;
      prompt.parallel_calls = false;
    }
  } else {
    throw bad_field("tool_choice", "tool_choice is {}, want a word or an object", shown(*value));
  }
  if (prompt.choice == ToolChoice::required && prompt.callable.empty()) {
    throw bad_field(
        "tool_choice",
        "tool_choice wants a tool to be called, and there are no functions in tools");
  }
}

bool ends_with_mark(
    const std::vector<Token>& ids, const Tokenizer& tokenizer, std::string_view mark) {
  const size_t last = std::min<size_t>(ids.size(), 16);
  const std::string text = tokenizer.decode(
      std::span(ids).subspan(ids.size() - last), {.skip_special = false, .continues = true});
  const size_t end = text.find_last_not_of(" \n\t");
  return end != std::string::npos && std::string_view(text).substr(0, end + 1).ends_with(mark);
}

// called: what the client calls them.
json::array parse_messages(Fields& fields, std::string_view called) {
  const json::array* list = fields.array("messages");
  if (list == nullptr || list->empty()) {
    throw bad_field(
        std::string(called),
        "{} is {}: want at least one message",
        called,
        list == nullptr ? "missing" : "empty");
  }
  json::array messages;
  for (size_t i = 0; i < list->size(); ++i) {
    messages.push_back(parse_message(list->at(i), fmt::format("messages[{}]", i)));
  }
  return messages;
}

// How much to think: in words, which the template is told, and in tokens.
void parse_reasoning(Fields& fields, const ServedModel& model, ChatPrompt& prompt) {
  auto effort = fields.text("reasoning_effort");
  prompt.reasoning_budget = model.reasoning_budget;
  const auto budget = [&](Fields& from, const char* name) {
    constexpr int64_t kMost = std::numeric_limits<int>::max();
    if (const auto tokens = from.integer(name, -1, kMost, "-1 (no limit) or a number of tokens")) {
      prompt.reasoning_budget = static_cast<int>(*tokens);
    }
  };
  // OpenRouter's.
  if (const json::object* reasoning = fields.object("reasoning")) {
    Fields inner(*reasoning, "reasoning.");
    effort = inner.text("effort").value_or(effort.value_or(""));
    budget(inner, "max_tokens");
  }
  // Ours, llama-server's and vLLM's.
  for (const char* name : {"reasoning_budget", "thinking_budget_tokens", "thinking_token_budget"}) {
    budget(fields, name);
  }
  if (effort && !effort->empty()) {
    prompt.render.extra["reasoning_effort"] = *effort;
  }
  const bool none = (effort && *effort == "none") || prompt.reasoning_budget == 0;
  if (none && !prompt.render.extra.contains("enable_thinking")) {
    prompt.render.extra["enable_thinking"] = false;
  }
}

// What is put behind reasoning that has had its tokens.
ReasoningBudget budget_of(
    const ChatPrompt& prompt,
    const std::vector<Token>& ids,
    const ServedModel& model,
    const ToolFormat& format) {
  const Tokenizer& tokenizer = model.text.tokenizer;
  ReasoningBudget budget;
  budget.tokens = prompt.reasoning_budget;
  budget.text_of = [&tokenizer](Token id) { return tokenizer.token_bytes(id); };
  std::string closing;
  if (format.whole) {
    budget.begin = "<|channel|>analysis<|message|>";
    budget.end = "<|end|>";
    closing = "<|end|><|start|>assistant<|channel|>final<|message|>";
  } else {
    const ReasoningTags tags = reasoning_tags(model.text.template_text);
    budget.begin = tags.begin;
    budget.end = tags.end;
    budget.inside = ends_with_mark(ids, tokenizer, tags.begin);
    closing = std::string(tags.end) + "\n\n";
  }
  budget.closing = tokenizer.encode(closing, {.parse_special = true});
  return budget;
}

}  // namespace

ChatPrompt parse_chat(Fields& fields, const ServedModel& model, const ChatNames& names) {
  if (!model.text.chat_template) {
    throw ApiError(
        400,
        "invalid_request_error",
        model.id +
            " has no chat template: use /v1/completions, or start the server with "
            "--chat-template-file",
        std::string(names.messages));
  }
  ChatPrompt prompt;
  prompt.names = names;
  prompt.messages = parse_messages(fields, names.messages);
  parse_tools(fields, prompt);
  prompt.render.extra = model.template_values;
  if (const json::object* values = fields.object("chat_template_kwargs")) {
    for (const auto& [key, value] : *values) {
      if (key == "messages" || key == "tools" || key == "add_generation_prompt") {
        const std::string name = "chat_template_kwargs." + std::string(key);
        throw bad_field(name, "{}: the template gets it from the field {}", name, key);
      }
      prompt.render.extra[key] = value;
    }
  }
  parse_reasoning(fields, model, prompt);
  parse_tool_choice(fields, prompt);
  prompt.told = told_messages(model.text, prompt.messages, prompt.render.tools);
  const std::string format = fields.text("reasoning_format").value_or("auto");
  if (format != "auto" && format != "none" && format != "deepseek") {
    throw bad_field(
        "reasoning_format", "reasoning_format is \"{}\", want auto, deepseek or none", format);
  }
  prompt.split_reasoning = format != "none";
  prompt.render.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  return prompt;
}

namespace {

// Why answers cannot be held to it; nothing where they can.
std::optional<std::string> objection(const ServedModel& model, const ConstraintSpec& form) {
  try {
    model.engine->check(form);
  } catch (const BusyError&) {
    throw;
  } catch (const UserError& error) {
    return error.what();
  }
  return std::nullopt;
}

bool is_strict(const json::value& tool) {
  const json::value* strict = tool.at("function").as_object().if_contains("strict");
  return strict != nullptr && *strict == true;
}

// What calls are not held to needs not be of a kind that they could be.
std::optional<std::string> objection_to_tool(
    const ChatPrompt& prompt, const ServedModel& model, const json::value& tool) {
  if (prompt.choice == ToolChoice::required || is_strict(tool)) {
    return objection(model, {ConstraintKind::json_schema, arguments_schema(tool)});
  }
  const json::value* parameters = tool.at("function").as_object().if_contains("parameters");
  return parameters ? contradiction(*parameters) : std::nullopt;
}

// Each schema by itself: of several, one that nothing fits would merely never be called.
void check_schemas(const ChatPrompt& prompt, const ServedModel& model) {
  for (size_t i = 0; i < prompt.callable.size(); ++i) {
    const json::value& tool = prompt.callable[i];
    if (const auto why = objection_to_tool(prompt, model, tool)) {
      throw bad_field(
          prompt.callable_fields[i],
          "{}: calls of '{}' cannot be held to it: {}",
          prompt.callable_fields[i],
          std::string_view(tool.at("function").at("name").as_string()),
          *why);
    }
  }
}

// The schemas are good by themselves; what is wrong with a grammar of ours is not for clients.
ConstraintSpec call_form(
    const ChatPrompt& prompt, const ServedModel& model, const ToolFormat& format) {
  const Tokenizer& tokenizer = model.text.tokenizer;
  ConstraintSpec form{
      ConstraintKind::lark, format.grammar(prompt.callable, prompt.parallel_calls, tokenizer)};
  if (!objection(model, form)) {
    return form;
  }
  for (size_t i = 0; i < prompt.callable.size(); ++i) {
    const json::value& tool = prompt.callable[i];
    if (objection(
            model, {ConstraintKind::lark, format.grammar(json::array{tool}, false, tokenizer)})) {
      throw bad_field(
          prompt.callable_fields[i],
          "{}: calls of '{}' cannot be held to it in the way that {} writes them: simplify its "
          "patterns and the lengths of its texts, or leave tool_choice at \"auto\"",
          prompt.callable_fields[i],
          std::string_view(tool.at("function").at("name").as_string()),
          model.id);
    }
  }
  throw bad_field(
      "tools",
      "tools: {} of them together are more than an answer can be held to: offer fewer, or leave "
      "tool_choice at \"auto\"",
      prompt.callable.size());
}

}  // namespace

void prepare_reading(
    const ChatPrompt& prompt,
    const std::vector<Token>& ids,
    const ServedModel& model,
    GenerationParams& params) {
  AnswerReaderOptions reader;
  const ToolFormat& format = tool_format(model.text);
  params.prompt_field = prompt.names.messages;
  reader.split_reasoning = prompt.split_reasoning;
  if (format.whole) {
    reader.tools = &format;
  } else if (prompt.split_reasoning) {
    reader.reasoning = reasoning_tags(model.text.template_text);
    reader.begins_in_reasoning = ends_with_mark(ids, model.text.tokenizer, reader.reasoning.begin);
  }
  if (prompt.choice != ToolChoice::none) {
    check_schemas(prompt, model);
    reader.tools = &format;
    reader.callable = prompt.callable;
    for (const json::value& tool : prompt.callable) {
      reader.names.emplace_back(tool.at("function").at("name").as_string());
    }
    params.one_call = !prompt.parallel_calls;
  }
  if (prompt.choice == ToolChoice::required) {
    if (params.sampling.constraint) {
      throw bad_field("tool_choice", "tool_choice: the form of the answer is given already");
    }
    params.sampling.constraint = call_form(prompt, model, format);
    params.form_field = "tools";
    reader.begins_in_reasoning = false;
  }
  // What is held to a form does not think.
  if (prompt.reasoning_budget >= 0 && !params.sampling.constraint) {
    params.options.reasoning = budget_of(prompt, ids, model, format);
  }
  params.reader = std::move(reader);
}

std::vector<Token> encode_chat(
    const ChatPrompt& prompt, const ServedModel& model, PromptLength length) {
  const auto rendered = [&](size_t bytes) {
    if (length == PromptLength::fits) {
      refuse_too_long(bytes, model, prompt.names.messages);
    } else {
      refuse_long_text(bytes, prompt.names.messages);
    }
  };
  return model.text.chat_template->encode(
      model.text.tokenizer, prompt.shown(), prompt.render, rendered);
}

}  // namespace quince::server
