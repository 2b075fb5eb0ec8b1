// A tokenizer's vocabulary as plain lists: what a GGUF file holds, ready for Tokenizer without a
// JSON text between (262,144 tokens are loaded in a fraction of a second). Plain data; the strings
// are views into the file that `owner` keeps mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quince {

enum class VocabularyKind {
  merges,     // byte-pair encoding by a list of merges
  scores,     // SentencePiece BPE: two pieces whose text is a token merge, the best score first
  unigram,    // SentencePiece Unigram
  wordpiece,  // BERT
};

enum class TokenType : uint8_t {  // numbered as in GGUF
  normal = 1,
  unknown = 2,
  control = 3,       // special: recognised only where the caller allows it
  user_defined = 4,  // recognised in every text before anything else
  unused = 5,
  byte = 6,  // "<0x0A>"
};

struct Vocabulary {
  VocabularyKind kind = VocabularyKind::merges;
  std::vector<std::string_view> tokens;  // by id
  std::vector<float> scores;             // empty or one a token
  std::vector<TokenType> types;          // empty (all normal) or one a token
  std::vector<uint8_t> strips;  // empty or one a token; bit 0: takes white space on its left with
                                // it, bit 1: on its right
  std::vector<std::string_view> merges;  // "left right"
  std::vector<std::string> splits;       // expressions that cut text into words, one after another

  bool byte_level = false;      // tokens are written in GPT-2's characters for bytes
  bool whole_words = false;     // a word that is a token is not merged but taken
  bool whole_newlines = false;  // so is a run of line feeds
  bool escape_spaces = false;   // U+2581 stands for a space
  bool space_prefix =
      false;                 // a space goes before the text and before what follows a special token
  bool split_marks = false;  // every U+2581 begins a word, and the text begins with one
  bool merge_spaces = false;  // unigram: spaces around go, runs become one
  bool nfc = false;
  bool lowercase = false;      // wordpiece
  bool strip_accents = false;  // wordpiece
  std::string charsmap;        // SentencePiece's precompiled normalization, or ""

  int32_t unknown = -1;
  std::vector<uint32_t> prefix;  // ids around a text with EncodeOptions::add_special
  std::vector<uint32_t> suffix;

  std::string description;  // "BPE, byte-level, pre-tokenizer smollm"
  std::shared_ptr<const void> owner;
};

}  // namespace quince
