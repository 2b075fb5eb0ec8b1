#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "chat/answer_reader.h"
#include "chat/parsers/grammar.h"
#include "chat/parsers/parsers.h"

namespace quince {

namespace {

bool has(std::string_view text, std::string_view mark) {
  return text.find(mark) != std::string_view::npos;
}

constexpr std::string_view kMistralMarks[] = {"[TOOL_CALLS]"};
constexpr std::string_view kHermesMarks[] = {"<tool_call>", "</tool_call>"};
constexpr std::string_view kLlamaMarks[] = {"<|python_tag|>"};
constexpr std::string_view kDeepseekMarks[] = {
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>"};
constexpr std::string_view kKimiMarks[] = {
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<|tool_call_argument_begin|>"};
constexpr std::string_view kDsmlMarks[] = {"｜DSML｜"};
constexpr std::string_view kMinimaxMarks[] = {"<minimax:tool_call>", "</minimax:tool_call>"};
constexpr std::string_view kLfmMarks[] = {"<|tool_call_start|>", "<|tool_call_end|>"};
constexpr std::string_view kGlmMarks[] = {
    "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
constexpr std::string_view kHarmonyMarks[] = {
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "<|end|>",
    "<|call|>",
    "<|return|>"};
constexpr std::string_view kGemmaMarks[] = {"<|tool_call>", "<tool_call|>", "<|\"|>"};
constexpr std::string_view kFunctionGemmaMarks[] = {
    "<start_function_call>", "<end_function_call>", "<escape>"};

constexpr std::string_view kTold = "told";

constexpr ToolFormat kFormats[] = {
    {"mistral",
     [](std::string_view t) { return has(t, "[TOOL_CALLS]"); },
     make_mistral,
     mistral_grammar,
     kMistralMarks},
    {"harmony",
     [](std::string_view t) { return has(t, "<|channel|>") && has(t, "<|message|>"); },
     make_harmony,
     harmony_grammar,
     kHarmonyMarks,
     true},
    {"deepseek_v3",
     [](std::string_view t) { return has(t, kDeepseekMarks[2]) && has(t, "```json"); },
     make_deepseek,
     deepseek_v3_grammar,
     kDeepseekMarks},
    {"deepseek_v31",
     [](std::string_view t) { return has(t, kDeepseekMarks[2]); },
     make_deepseek,
     deepseek_v31_grammar,
     kDeepseekMarks},
    {"deepseek_v32",
     [](std::string_view t) { return has(t, kDsmlMarks[0]) && has(t, "function_calls>"); },
     make_deepseek_v32,
     deepseek_v32_grammar,
     kDsmlMarks},
    {"deepseek_v4",
     [](std::string_view t) { return has(t, kDsmlMarks[0]); },
     make_deepseek_v4,
     deepseek_v4_grammar,
     kDsmlMarks},
    {"kimi",
     [](std::string_view t) { return has(t, kKimiMarks[0]); },
     make_kimi,
     kimi_grammar,
     kKimiMarks,
     false,
     true},
    {"minimax",
     [](std::string_view t) { return has(t, kMinimaxMarks[0]); },
     make_minimax,
     minimax_grammar,
     kMinimaxMarks},
    {"lfm",
     [](std::string_view t) {
       return has(t, kLfmMarks[0]) || has(t, "<|tool_list_start|>") || has(t, "List of tools: [");
     },
     make_lfm,
     lfm_grammar,
     kLfmMarks},
    {"glm",
     [](std::string_view t) { return has(t, "<tool_call>") && has(t, "<arg_key>"); },
     make_glm,
     glm_grammar,
     kGlmMarks},
    {"qwen_coder",
     [](std::string_view t) { return has(t, "<tool_call>") && has(t, "<function="); },
     make_qwen_coder,
     qwen_coder_grammar,
     kHermesMarks},
    {"hermes",
     [](std::string_view t) { return has(t, "<tool_call>"); },
     make_hermes,
     hermes_grammar,
     kHermesMarks},
    {"gemma",
     [](std::string_view t) { return has(t, "<|tool_call>call:"); },
     make_gemma,
     gemma_grammar,
     kGemmaMarks},
    {"function_gemma",
     [](std::string_view t) { return has(t, "<start_function_call>"); },
     make_function_gemma,
     function_gemma_grammar,
     kFunctionGemmaMarks},
    {"llama3",
     [](std::string_view t) {
       return has(t, "<|python_tag|>") ||
              (has(t, "<|start_header_id|>") && has(t, "\"parameters\""));
     },
     make_plain_json,
     llama_grammar,
     kLlamaMarks},
    {kTold, [](std::string_view) { return false; }, make_told, hermes_grammar, kHermesMarks},
    {"json", [](std::string_view) { return true; }, make_plain_json, json_grammar, {}},
};

}  // namespace

std::span<const ToolFormat> tool_formats() {
  return kFormats;
}

const ToolFormat& tool_format(std::string_view chat_template) {
  return *std::find_if(std::begin(kFormats), std::end(kFormats), [&](const ToolFormat& format) {
    return format.is_of(chat_template);
  });
}

const ToolFormat& told_format() {
  return *std::find_if(std::begin(kFormats), std::end(kFormats), [](const ToolFormat& format) {
    return format.name == kTold;
  });
}

namespace {

// What a schema refers to in itself, when it stands at `place` of another one.
void rebase(boost::json::value& schema, const std::string& place) {
  if (auto* list = schema.if_array()) {
    for (boost::json::value& item : *list) {
      rebase(item, place);
    }
    return;
  }
  auto* object = schema.if_object();
  if (object == nullptr) {
    return;
  }
  for (auto& [name, value] : *object) {
    const auto* target = value.if_string();
    if (name == "$ref" && target != nullptr && target->starts_with('#')) {
      value = place + std::string(std::string_view(*target).substr(1));
    } else {
      rebase(value, place);
    }
  }
}

}  // namespace

boost::json::object call_schema(
    const boost::json::array& tools, std::string_view key, std::string_view place) {
  boost::json::array any;
  for (const boost::json::value& tool : tools) {
    const auto& function = tool.at("function").as_object();
    boost::json::object properties{{"name", {{"const", function.at("name")}}}};
    properties[key] = parameters_of(tool);
    rebase(properties[key], fmt::format("{}/anyOf/{}/properties/{}", place, any.size(), key));
    any.push_back(boost::json::object{
        {"type", "object"},
        {"properties", std::move(properties)},
        {"required", boost::json::array{"name", boost::json::string(key)}},
        {"additionalProperties", false}});
  }
  return {{"anyOf", std::move(any)}};
}

}  // namespace quince
