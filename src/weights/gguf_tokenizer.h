// The vocabulary inside a GGUF file as Tokenizer takes it: byte-level BPE with the named
// pre-tokenizers (tokenizer.ggml.pre), SentencePiece BPE ("llama"), Gemma 4's BPE, WordPiece
// ("bert") and Unigram ("t5").
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/vocabulary.h"
#include "weights/gguf.h"

namespace quince {

// The file's vocabulary; its strings point into file's mapping and keep it alive. An unknown
// pre-tokenizer falls back to the default one with a line in notes. Throws UserError naming the
// file: no or ill-typed lists, lists of unequal length, ids outside the vocabulary, an unknown
// kind.
std::shared_ptr<const Vocabulary> gguf_vocabulary(
    const GgufFile& file, std::vector<std::string>& notes);

// How text is cut into words before merging, by the name in tokenizer.ggml.pre.
struct PreTokenizer {
  std::string_view name;
  std::vector<std::string_view> splits;
  bool whole_words = false;  // words that are tokens are not merged
  bool nfc = false;
  bool add_bos = false;  // when the file does not say
};
// The rules of the pre-tokenizer of that name; nothing for an unknown one.
std::optional<PreTokenizer> find_pre_tokenizer(std::string_view name);
std::vector<std::string_view> pre_tokenizer_names();

}  // namespace quince
