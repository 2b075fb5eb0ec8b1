#include "weights/model_identity.h"

#include <algorithm>

#include "base/vocabulary.h"
#include "weights/digest.h"

namespace quince {

namespace {

constexpr size_t kSample = 64;

// What texts mean in tokens: a prompt of the same ids is another text in another vocabulary.
void add_vocabulary(Sha256& sha, const TokenizerSource& source) {
  sha.add_text(source.tokenizer_json);
  if (const Vocabulary* vocabulary = source.vocabulary.get()) {
    sha.add_number(static_cast<uint64_t>(vocabulary->tokens.size()));
    std::string all;  // in one call, not in one for each of 262,144 tokens
    for (const std::string_view token : vocabulary->tokens) {
      const auto size = static_cast<uint32_t>(token.size());
      all.append(reinterpret_cast<const char*>(&size), sizeof(size));
      all += token;
    }
    sha.add_text(all);
  }
}

}  // namespace

std::string model_identity(const ModelFiles& files) {
  Sha256 sha;
  sha.add_text("quince model 2");
  sha.add_text(boost::json::serialize(files.config));
  add_vocabulary(sha, files.tokenizer);
  for (const TensorView& tensor : files.tensors) {
    sha.add_text(tensor.name);
    sha.add_text(info(tensor.type).name);
    sha.add_text(shape_text(tensor.shape));
    sha.add_number(tensor.add);
    sha.add_number(static_cast<uint64_t>(tensor.row_order.size()));
    sha.add(std::as_bytes(std::span(tensor.row_order)));
    const size_t size = tensor.bytes.size();
    const size_t sample = std::min(kSample, size);
    for (const size_t at : {size_t{0}, (size - sample) / 2, size - sample}) {
      sha.add(tensor.bytes.subspan(at, sample));
    }
  }
  const auto digest = sha.finish();
  return hex(std::span(digest).first(16));
}

}  // namespace quince
