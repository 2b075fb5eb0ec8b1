// The ways of writing tool calls, one file each; answer_reader.cpp and tool_formats.cpp use them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "chat/answer_reader.h"

namespace quince {

// <tool_call>{"name", "arguments"}</tool_call>, or in it
// <function=name><parameter=key>value</parameter></function>: Hermes, Qwen, SmolLM3.
std::unique_ptr<ToolCallReader> make_hermes(const AnswerReaderOptions& options);
std::string hermes_grammar(const boost::json::array& tools, bool many, const Tokenizer& tokenizer);
// The second of them: Qwen3-Coder, Qwen3.5.
std::unique_ptr<ToolCallReader> make_qwen_coder(const AnswerReaderOptions& options);
std::string qwen_coder_grammar(
    const boost::json::array& tools, bool many, const Tokenizer& tokenizer);

// The answer is {"name", "parameters"}, perhaps behind <|python_tag|>: Llama 3; and what is asked
// of models that were taught nothing.
std::unique_ptr<ToolCallReader> make_plain_json(const AnswerReaderOptions& options);
std::string llama_grammar(const boost::json::array& tools, bool many, const Tokenizer& tokenizer);
std::string json_grammar(const boost::json::array& tools, bool many, const Tokenizer& tokenizer);

// The same, perhaps in a block of code; and Python's calls in ```tool_code, or a list of them that
// the answer begins with. Parts of what models write that were told of tools in words.
std::unique_ptr<ToolCallReader> make_fenced_json(const AnswerReaderOptions& options);
std::unique_ptr<ToolCallReader> make_tool_code(const AnswerReaderOptions& options);
std::unique_ptr<ToolCallReader> make_told(const AnswerReaderOptions& options);

// <|tool_call_start|>[name(key="value", ...), ...]<|tool_call_end|>: LFM2.
std::unique_ptr<ToolCallReader> make_lfm(const AnswerReaderOptions& options);
std::string lfm_grammar(const boost::json::array& tools, bool many, const Tokenizer& tokenizer);

// [TOOL_CALLS][{"name", "arguments"}, ...], or [TOOL_CALLS]name[ARGS]{...}: Mistral.
std::unique_ptr<ToolCallReader> make_mistral(const AnswerReaderOptions& options);
std::string mistral_grammar(const boost::json::array& tools, bool many, const Tokenizer& tokenizer);

// <｜tool▁call▁begin｜>function<｜tool▁sep｜>name and a fenced JSON object: DeepSeek V3, R1 and its
// distillates; or name<｜tool▁sep｜>{...}: V3.1.
std::unique_ptr<ToolCallReader> make_deepseek(const AnswerReaderOptions& options);
std::string deepseek_v3_grammar(
    const boost::json::array& tools, bool many, const Tokenizer& tokenizer);
std::string deepseek_v31_grammar(
    const boost::json::array& tools, bool many, const Tokenizer& tokenizer);

// <|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}<|tool_call_end|> in a
// section: Kimi K2.
std::unique_ptr<ToolCallReader> make_kimi(const AnswerReaderOptions& options);
std::string kimi_grammar(const boost::json::array& tools, bool many, const Tokenizer& tokenizer);

// <｜DSML｜invoke name="name"><｜DSML｜parameter name="key" string="true">value</｜DSML｜parameter>
// </｜DSML｜invoke> in a section that is called function_calls by DeepSeek V3.2 and tool_calls by
// V4; MiniMax M2's is <minimax:tool_call>, its tags are without DSML and types.
std::unique_ptr<ToolCallReader> make_deepseek_v32(const AnswerReaderOptions& options);
std::unique_ptr<ToolCallReader> make_deepseek_v4(const AnswerReaderOptions& options);
std::unique_ptr<ToolCallReader> make_minimax(const AnswerReaderOptions& options);
std::string deepseek_v32_grammar(
    const boost::json::array& tools, bool many, const Tokenizer& tokenizer);
std::string deepseek_v4_grammar(
    const boost::json::array& tools, bool many, const Tokenizer& tokenizer);
std::string minimax_grammar(const boost::json::array& tools, bool many, const Tokenizer& tokenizer);

// <tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value>...</tool_call>: GLM-4.5 and on.
std::unique_ptr<ToolCallReader> make_glm(const AnswerReaderOptions& options);
std::string glm_grammar(const boost::json::array& tools, bool many, const Tokenizer& tokenizer);

// <|channel|>commentary to=functions.name<|message|>{...}: gpt-oss, whose answers and reasoning are
// messages too.
std::unique_ptr<ToolCallReader> make_harmony(const AnswerReaderOptions& options);
std::string harmony_grammar(const boost::json::array& tools, bool many, const Tokenizer& tokenizer);

// call:name{key:value,...} between marks of Gemma 4 or of FunctionGemma.
std::unique_ptr<ToolCallReader> make_gemma(const AnswerReaderOptions& options);
std::unique_ptr<ToolCallReader> make_function_gemma(const AnswerReaderOptions& options);
std::string gemma_grammar(const boost::json::array& tools, bool many, const Tokenizer& tokenizer);
std::string function_gemma_grammar(
    const boost::json::array& tools, bool many, const Tokenizer& tokenizer);

// A schema of {"name": ..., key: ...} for any of the tools. place: where it will stand in the whole
// schema, a JSON pointer behind #: what tools' schemas refer to in themselves follows it.
boost::json::object call_schema(
    const boost::json::array& tools, std::string_view key, std::string_view place = "#");

}  // namespace quince
