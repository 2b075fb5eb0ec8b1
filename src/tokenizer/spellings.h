// Texts as the token sequences that sampling parameters want.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace quince {

// Every sequence of tokens in whose text one of the texts lies or begins: a token that holds the
// whole text alone; a token that ends with its beginning, followed by the tokens of the rest (at
// most 20). So a text is found wherever it was cut. For DRY's sequence breakers (koboldcpp pull
// request 982). Looks at the whole vocabulary: milliseconds. Each sequence once, sorted.
std::vector<std::vector<Token>> overlapping_sequences(
    const Tokenizer& tokenizer, std::span<const std::string> texts);

// Each text as it is encoded at the beginning of a text, and behind a space. For bad_words (as vLLM
// takes them). Each sequence once, sorted.
std::vector<std::vector<Token>> word_sequences(
    const Tokenizer& tokenizer, std::span<const std::string> texts);

}  // namespace quince
