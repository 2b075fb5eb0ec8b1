// The vocabulary of a GGUF file as the text of a tokenizer.json, for programs that read nothing
// else.
#pragma once

#include <string>

#include "base/vocabulary.h"

namespace quince {

// Throws UserError for kinds of vocabularies that tokenizer.json's BPE cannot express. source:
// named in errors.
std::string tokenizer_json(const Vocabulary& vocabulary, const std::string& source);

}  // namespace quince
