// Text to token ids and back. Immutable after construction; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/vocabulary.h"

struct qb_tokenizer;

namespace quince {

using Token = int32_t;

struct EncodeOptions {
  bool add_special = false;  // what the tokenizer's post-processor adds (BOS, once)
  bool parse_special =
      false;  // "<|im_end|>" in the text becomes the special token; false: it is text
};

struct DecodeOptions {
  bool skip_special = true;
  // StreamDecoder: the text goes on from other text, so the space that some vocabularies put before
  // the first word, and decode() takes away, is one.
  bool continues = false;
};

// A half-open range of bytes of a text, at character borders.
struct TextRange {
  size_t begin;
  size_t end;
};

class Tokenizer {
 public:
  // tokenizer_json: text of a Hugging Face tokenizer.json. Throws UserError naming `source`.
  Tokenizer(std::string_view tokenizer_json, std::string_view source);
  // The same from plain lists, as a GGUF file has them. Copies what it needs.
  Tokenizer(const Vocabulary& vocabulary, std::string_view source);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // text must be UTF-8; invalid bytes are replaced by U+FFFD first.
  std::vector<Token> encode(std::string_view text, EncodeOptions options = {}) const;
  // Special tokens become such only where they lie wholly inside one of the ranges (ascending,
  // apart). text must be valid UTF-8. Adds nothing.
  std::vector<Token> encode(std::string_view text, std::span<const TextRange> special) const;
  // Invalid byte sequences become U+FFFD; ids without a token decode to "".
  std::string decode(std::span<const Token> ids, DecodeOptions options = {}) const;

  // The bytes that a token stands for inside a text, part of a character or not; of a special token
  // its text. "" for ids without a token.
  std::string token_bytes(Token id) const;

  int vocab_size() const;  // highest id + 1
  std::optional<Token> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(Token id) const;
  bool is_special(Token id) const;
  std::vector<std::string> special_tokens() const;  // texts of special added tokens

 private:
  friend class StreamDecoder;
  friend const qb_tokenizer* tokenizer_handle(const Tokenizer& tokenizer);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Decodes one sequence token by token. Never returns part of a character: bytes that may still
// become one are held back; really broken bytes become one U+FFFD. The concatenation of all
// returned pieces equals Tokenizer::decode of the whole (the property tests check it). The
// tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options = {});
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  std::string add(Token id);
  // What was held back. cut: more would have come, so a character that was begun is left out
  // instead of being broken.
  std::string finish(bool cut = false);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Finds stop strings in streamed text; holds back the longest suffix that may be the beginning of
// one. Of several stop strings the one that is complete first counts, of those complete at once the
// longest; so the answer does not depend on how the text was cut into pieces.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // empty strings are ignored
  // Text safe to show. After a match: the text before it, and stopped() is true; later adds return
  // "".
  std::string add(std::string_view piece);
  std::string finish();
  bool stopped() const {
    return stopped_.has_value();
  }
  const std::optional<std::string>& stop_string() const {
    return stopped_;
  }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::optional<std::string> stopped_;
};

}  // namespace quince
