// Tiny llama models whose greedy output is known in advance, as directories that any test can open
// (f32, 3.8 MB, context 512). The next token is a function of the current one, except for majority:
//   script    from BOS: "The quick brown fox jumps over" and a woman emoji (11 text tokens), then
//   end loop      from BOS: "x y z x y z ..." and never the end majority  the next token is the
//   most frequent one of the visible context dice      from BOS one of A B C " x" " y" with logits
//   2 1 0 -1 -2, then the end think     from BOS: "<think> x</think> y" in cut pieces, then the end
//   tool      from BOS: a call of f with {"q": "e-acute"} as Hermes writes it, in 13 pieces
//   mixed     from BOS: " x", that call, and " y", in 14 pieces, of which the last has the call's
//   end
// Ids: BOS 1, end 2, byte b is 3 + b, The 259, quick 260, br 261, own 262, fox 263, jumps 264, over
// 265, A 266, B 267, C 268, x 269, y 270, z 271, space 275; rows 276 to 383 of the head have no
// token, but for the pieces of think, tool and mixed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "weights/safetensors_writer.h"

namespace quince::test {

enum class Script { script, loop, majority, dice, think, tool, mixed };

inline constexpr int kScriptVocabulary = 384;
inline constexpr int kScriptBos = 1;
inline constexpr int kScriptEnd = 2;

inline const std::vector<int>& script_chain() {
  static const std::vector<int> chain{
      259, 260, 261, 262, 263, 264, 265, 3 + 0xF0, 3 + 0x9F, 3 + 0x91, 3 + 0xA9, kScriptEnd};
  return chain;
}

// What think, tool and mixed write, in the pieces of their own vocabulary.
inline const std::vector<std::string>& think_pieces() {
  static const std::vector<std::string> pieces{"<th", "ink>", "▁x", "</", "think>", "▁y"};
  return pieces;
}
inline const std::vector<std::string>& tool_pieces() {
  static const std::vector<std::string> pieces{
      "<tool_",
      "call>",
      "{\"name\":",
      "▁\"f\",",
      "▁\"argu",
      "ments\":",
      "▁{\"q\":",
      "▁\"",
      "<0xC3>",
      "<0xA9>",
      "\"}}",
      "</tool_c",
      "all>"};
  return pieces;
}
inline const std::vector<std::string>& mixed_pieces() {
  static const std::vector<std::string> pieces = [] {
    std::vector<std::string> list = tool_pieces();
    list.insert(list.begin(), "▁x");
    list.back() += "▁y";
    return list;
  }();
  return pieces;
}
inline std::vector<std::string> written_pieces(Script kind) {
  return kind == Script::think   ? think_pieces()
         : kind == Script::tool  ? tool_pieces()
         : kind == Script::mixed ? mixed_pieces()
                                 : std::vector<std::string>();
}

// Text of the pieces in order of id; a metaspace stands for a space.
inline std::vector<std::string> script_pieces(Script kind = Script::script) {
  std::vector<std::string> pieces{"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) {
    pieces.push_back(fmt::format("<0x{:02X}>", byte));
  }
  const char* const words[] = {
      "▁The",
      "▁quick",
      "▁br",
      "own",
      "▁fox",
      "▁jumps",
      "▁over",
      "A",
      "B",
      "C",
      "▁x",
      "▁y",
      "▁z",
      "▁A",
      "▁B",
      "▁C",
      "▁"};
  pieces.insert(pieces.end(), std::begin(words), std::end(words));
  for (const std::string& piece : written_pieces(kind)) {
    if (std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) {
      pieces.push_back(piece);
    }
  }
  return pieces;
}

inline int script_id(Script kind, const std::string& piece) {
  const auto pieces = script_pieces(kind);
  return static_cast<int>(std::find(pieces.begin(), pieces.end(), piece) - pieces.begin());
}

inline boost::json::object script_tokenizer(Script kind = Script::script) {
  namespace json = boost::json;
  json::array vocabulary;
  json::array added;
  const std::vector<std::string> pieces = script_pieces(kind);
  for (size_t i = 0; i < pieces.size(); ++i) {
    vocabulary.push_back(json::array{pieces[i], i >= 259 ? -1.0 : -20.0});
    if (i < 3) {
      added.push_back(json::object{
          {"id", i},
          {"content", pieces[i]},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false},
          {"normalized", false},
          {"special", true}});
    }
  }
  const auto replace = [](const char* from, const char* to) {
    return json::object{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", replace(" ", "▁")},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         json::array{
             json::object{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
             json::object{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair",
         json::array{
             json::object{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
             json::object{{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
        {"special_tokens",
         {{"<s>", {{"id", "<s>"}, {"ids", json::array{1}}, {"tokens", json::array{"<s>"}}}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         json::array{
             replace("▁", " "),
             json::object{{"type", "ByteFallback"}},
             json::object{{"type", "Fuse"}},
             json::object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "Unigram"}, {"unk_id", 0}, {"byte_fallback", true}, {"vocab", vocabulary}}}};
}

inline boost::json::object script_config() {
  return {
      {"architectures", boost::json::array{"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"hidden_size", kScriptVocabulary},
      {"num_hidden_layers", 1},
      {"intermediate_size", 64},
      {"num_attention_heads", 6},
      {"num_key_value_heads", 6},
      {"head_dim", 64},
      {"rms_norm_eps", 1e-6},
      {"vocab_size", kScriptVocabulary},
      {"rope_theta", 10000.0},
      {"max_position_embeddings", 512},
      {"tie_word_embeddings", false},
      {"bos_token_id", kScriptBos},
      {"eos_token_id", kScriptEnd},
      {"torch_dtype", "float32"}};
}

struct ScriptTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

inline std::vector<ScriptTensor> script_tensors(Script kind) {
  constexpr int64_t n = kScriptVocabulary;
  const auto square = [](float diagonal) {
    std::vector<float> m(static_cast<size_t>(n * n));
    for (int64_t i = 0; i < n; ++i) {
      m[static_cast<size_t>(i * (n + 1))] = diagonal;
    }
    return m;
  };
  const bool majority = kind == Script::majority;
  std::vector<float> head = square(majority ? 4.0f : 0.0f);
  if (!majority) {
    // A one-hot row leaves the norm as sqrt(n): a weight of 4 makes a logit of about 78.
    std::vector<int> next(static_cast<size_t>(n), kScriptEnd);
    const std::vector<int> loop{269, 270, 271, 269};
    std::vector<int> written;
    for (const std::string& piece : written_pieces(kind)) {
      written.push_back(script_id(kind, piece));
    }
    written.push_back(kScriptEnd);
    int at = kScriptBos;
    for (const int id : kind == Script::script ? script_chain()
                        : kind == Script::loop ? loop
                                               : written) {
      next[static_cast<size_t>(at)] = id;
      at = id;
    }
    for (int64_t token = 0; token < n; ++token) {
      head[static_cast<size_t>(next[static_cast<size_t>(token)] * n + token)] = 4.0f;
    }
  }
  if (kind == Script::dice) {
    const float unit = 1.0f / std::sqrt(static_cast<float>(n));
    for (int64_t row = 0; row < n; ++row) {
      head[static_cast<size_t>(row * n + kScriptBos)] = -50.0f * unit;
    }
    for (int i = 0; i < 5; ++i) {
      head[static_cast<size_t>((266 + i) * n + kScriptBos)] = static_cast<float>(2 - i) * unit;
    }
  }
  const std::vector<float> ones(static_cast<size_t>(n), 1.0f);
  const std::vector<float> narrow(static_cast<size_t>(64 * n));
  const std::string at = "model.layers.0.";
  return {
      {"model.embed_tokens.weight", {n, n}, square(1.0f)},
      {"model.norm.weight", {n}, ones},
      {"lm_head.weight", {n, n}, head},
      {at + "input_layernorm.weight", {n}, ones},
      {at + "post_attention_layernorm.weight", {n}, ones},
      {at + "mlp.gate_proj.weight", {64, n}, narrow},
      {at + "mlp.up_proj.weight", {64, n}, narrow},
      {at + "mlp.down_proj.weight", {n, 64}, narrow},
      {at + "self_attn.q_proj.weight", {n, n}, square(0.0f)},
      {at + "self_attn.k_proj.weight", {n, n}, square(0.0f)},
      {at + "self_attn.v_proj.weight", {n, n}, square(majority ? 1.0f : 0.0f)},
      {at + "self_attn.o_proj.weight", {n, n}, square(majority ? 1.0f : 0.0f)}};
}

// Writes the model's directory, which must not exist yet. Changes to the config and to the tensors
// may be given.
inline void write_script_model(
    const std::filesystem::path& directory,
    Script kind,
    const boost::json::object& config,
    const std::vector<ScriptTensor>& tensors) {
  SafetensorsWriterOptions options;
  options.metadata = {{"format", "pt"}};
  SafetensorsWriter writer(directory, options);
  for (const ScriptTensor& t : tensors) {
    writer.declare(t.name, TensorType::f32, t.shape);
  }
  writer.start();
  for (const ScriptTensor& t : tensors) {
    writer.write(t.name, std::as_bytes(std::span(t.values)));
  }
  const std::string tools = "{% if tools %}{% set mark = '<tool_call></tool_call>' %}{% endif %}";
  const std::string messages = "{% for m in messages %}{{ m.content }}{% endfor %}";
  writer.add_file("config.json", boost::json::serialize(config));
  writer.add_file("tokenizer.json", boost::json::serialize(script_tokenizer(kind)));
  writer.add_file(
      "tokenizer_config.json",
      boost::json::serialize(boost::json::object{
          {"tokenizer_class", "PreTrainedTokenizerFast"},
          {"bos_token", "<s>"},
          {"eos_token", "</s>"},
          {"unk_token", "<unk>"},
          {"add_bos_token", true},
          {"clean_up_tokenization_spaces", false},
          {"chat_template",
           (kind == Script::tool || kind == Script::mixed ? tools : "") +
               std::string("{{ bos_token }}") + (kind == Script::majority ? messages : "")}}));
  writer.commit();
}

inline void write_script_model(
    const std::filesystem::path& directory,
    Script kind,
    const boost::json::object& config = script_config()) {
  write_script_model(directory, kind, config, script_tensors(kind));
}

}  // namespace quince::test
