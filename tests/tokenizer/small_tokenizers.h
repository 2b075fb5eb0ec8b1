// Small tokenizers made on the spot: one byte-level, one in SentencePiece's manner with byte
// fallback.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "tokenizer/tokenizer.h"

namespace quince::test {

inline void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
    return;
  }
  out.push_back(static_cast<char>(0xc0 | c >> 6));
  out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
}

// GPT-2's character for a byte.
inline std::string byte_char(int byte) {
  int next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool itself =
        (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
    if (b == byte) {
      std::string out;
      append_utf8(out, static_cast<uint32_t>(itself ? b : next));
      return out;
    }
    next += itself ? 0 : 1;
  }
  return "";
}

inline constexpr std::string_view kGpt2Split =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Ids: byte b is b; then the merges in their order; then "<s>", "<|end|>", "<think>" (not special).
struct ByteLevel {
  std::deque<std::string> texts;
  Vocabulary vocabulary;

  ByteLevel() {
    auto add = [&](std::string text, TokenType type) {
      vocabulary.tokens.push_back(texts.emplace_back(std::move(text)));
      vocabulary.types.push_back(type);
    };
    for (int b = 0; b < 256; ++b) {
      add(byte_char(b), TokenType::normal);
    }
    for (const char* merge :
         {"h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "o r", "Ġwo r", "l d", "Ġwor ld"}) {
      vocabulary.merges.push_back(texts.emplace_back(merge));
      std::string joined = merge;
      joined.erase(joined.find(' '), 1);
      add(joined, TokenType::normal);
    }
    add("<s>", TokenType::control);
    add("<|end|>", TokenType::control);
    add("<think>", TokenType::user_defined);
    vocabulary.byte_level = true;
    vocabulary.splits = {std::string(kGpt2Split)};
    vocabulary.prefix = {266};
  }
  Tokenizer make() const {
    return Tokenizer(vocabulary, "byte-level");
  }
};

// tokenizer.json like Llama 2's: ids <unk> 0, <s> 1, </s> 2, byte b 3 + b, then words by merges.
inline std::string sentence_piece_json() {
  boost::json::object vocab{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int b = 0; b < 256; ++b) {
    vocab[fmt::format("<0x{:02X}>", b)] = 3 + b;
  }
  boost::json::array merges;
  auto add = [&](const char* token) { vocab[token] = static_cast<int64_t>(vocab.size()); };
  for (const char* c : {"▁", "T", "h", "e", "f", "o", "x", "A"}) {
    add(c);
  }
  for (auto [left, right] :
       {std::pair("T", "h"),
        std::pair("Th", "e"),
        std::pair("▁", "The"),
        std::pair("f", "o"),
        std::pair("fo", "x"),
        std::pair("▁", "fox")}) {
    merges.push_back(boost::json::array{left, right});
    add((std::string(left) + right).c_str());
  }
  const auto special = [](int id, const char* text) {
    return boost::json::object{
        {"id", id},
        {"content", text},
        {"special", true},
        {"single_word", false},
        {"lstrip", false},
        {"rstrip", false},
        {"normalized", false}};
  };
  const boost::json::object spaces{{"String", " "}};
  const boost::json::object marks{{"String", "▁"}};
  const boost::json::object json{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens",
       boost::json::array{special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         boost::json::array{
             boost::json::object{{"type", "Prepend"}, {"prepend", "▁"}},
             boost::json::object{{"type", "Replace"}, {"pattern", spaces}, {"content", "▁"}}}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         boost::json::array{
             boost::json::object{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
             boost::json::object{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair",
         boost::json::array{
             boost::json::object{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
             boost::json::object{{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
        {"special_tokens",
         {{"<s>",
           {{"id", "<s>"},
            {"ids", boost::json::array{1}},
            {"tokens", boost::json::array{"<s>"}}}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         boost::json::array{
             boost::json::object{{"type", "Replace"}, {"pattern", marks}, {"content", " "}},
             boost::json::object{{"type", "ByteFallback"}},
             boost::json::object{{"type", "Fuse"}},
             boost::json::object{
                 {"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", "<unk>"},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges", merges}}}};
  return boost::json::serialize(json);
}

// The pieces of sentence_piece_json as a Unigram model, which is not our own engine's.
inline std::string unigram_json() {
  boost::json::object json = boost::json::parse(sentence_piece_json()).as_object();
  const boost::json::object vocab = json["model"].as_object()["vocab"].as_object();
  boost::json::array pieces(vocab.size());
  for (const auto& [piece, id] : vocab) {
    const bool byte = piece.starts_with("<");
    pieces[id.to_number<size_t>()] = boost::json::array{piece, byte ? -20.0 : -1.0};
  }
  json["model"] = boost::json::object{
      {"type", "Unigram"}, {"unk_id", 0}, {"byte_fallback", true}, {"vocab", pieces}};
  return boost::json::serialize(json);
}

// The same with a decoder that only the crate knows, for whole sequences.
inline std::string whole_sequences_json() {
  boost::json::object json = boost::json::parse(unigram_json()).as_object();
  boost::json::array& steps = json["decoder"].as_object()["decoders"].as_array();
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "zz"}}}, {"content", "z"}});
  return boost::json::serialize(json);
}

// Byte-level, but with the decoder of a SentencePiece vocabulary, as files made from tekken's have
// it: ids of bytes, then "Ġa" 256.
inline std::string byte_level_with_foreign_decoder_json() {
  boost::json::object json = boost::json::parse(sentence_piece_json()).as_object();
  boost::json::object vocab;
  for (int b = 0; b < 256; ++b) {
    vocab[byte_char(b)] = b;
  }
  vocab["Ġa"] = 256;
  json["added_tokens"] = boost::json::array{};
  json["normalizer"] = nullptr;
  json["post_processor"] = nullptr;
  json["pre_tokenizer"] = {
      {"type", "ByteLevel"},
      {"add_prefix_space", false},
      {"trim_offsets", true},
      {"use_regex", true}};
  json["model"] =
      boost::json::object{{"type", "BPE"}, {"vocab", vocab}, {"merges", boost::json::array{"Ġ a"}}};
  return boost::json::serialize(json);
}

}  // namespace quince::test
