// Schemas, expressions and grammars, as text of unknown origin, and walks through what they allow.
// The input is the kind (one byte), then the text, then optionally a NUL and bytes that steer the
// walk.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "constraint/constraint.h"

namespace {

constexpr int kVocab = 300;  // more than there are tokens

quince::Tokenizer bytes_and_words() {
  std::vector<std::string> texts;
  quince::Vocabulary vocabulary;
  vocabulary.kind = quince::VocabularyKind::scores;
  for (int byte = 0; byte < 256; ++byte) {
    texts.push_back(fmt::format("<0x{:02X}>", byte));
    vocabulary.types.push_back(quince::TokenType::byte);
  }
  for (const char* word : {"\":", "ab", "{\"", "12", "\xc3\xa4", "]}"}) {
    texts.emplace_back(word);
    vocabulary.types.push_back(quince::TokenType::normal);
  }
  texts.emplace_back("<end>");
  vocabulary.types.push_back(quince::TokenType::control);
  vocabulary.tokens.assign(texts.begin(), texts.end());
  vocabulary.scores.resize(texts.size());
  return quince::Tokenizer(vocabulary, "fuzz");
}

// Throws std::logic_error when the mask allows what cannot be consumed.
void walk(quince::ConstraintMatcher matcher, const uint8_t* steps, size_t count) {
  quince::TokenBits bits((kVocab + 31) / 32);
  for (size_t i = 0; i < count; ++i) {
    const auto place = matcher.mask(bits);
    std::vector<quince::Token> allowed;
    for (quince::Token token = 0; token < kVocab; ++token) {
      if ((bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0) {
        allowed.push_back(token);
      }
    }
    if (place.complete || allowed.empty()) {
      return;
    }
    if (steps[i] % 16 == 15) {
      matcher.consume(matcher.forced());
      continue;
    }
    quince::ConstraintMatcher copy = matcher.clone();
    try {
      matcher.consume(std::vector<quince::Token>{allowed[steps[i] % allowed.size()]});
    } catch (const std::runtime_error& e) {
      if (std::string(e.what()).find("does not fit") != std::string::npos) {
        throw std::logic_error(e.what());
      }
      throw;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const quince::Tokenizer tokenizer = bytes_and_words();
  static quince::ConstraintCompiler compiler(tokenizer, kVocab);
  if (size == 0) {
    return 0;
  }
  const std::string_view input(reinterpret_cast<const char*>(data + 1), size - 1);
  const size_t end = std::min(input.find('\0'), input.size());
  quince::ConstraintSpec spec;
  spec.kind = static_cast<quince::ConstraintKind>(data[0] % 6);
  spec.text = input.substr(0, end);
  try {
    const auto constraint = compiler.compile(spec);
    compiler.forget(constraint.get());
    const size_t steps = std::min(end + 1, input.size());
    walk(constraint->begin(), data + 1 + steps, std::min<size_t>(input.size() - steps, 64));
  } catch (const std::runtime_error&) {  // and UserError
  }
  return 0;
}
