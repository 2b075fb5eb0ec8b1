#include "chat/text_side.h"

#include "base/error.h"

namespace quince {

std::vector<Token> raw_prompt(const TextSide& text, std::string_view prompt) {
  std::vector<Token> ids =
      text.tokenizer.encode(prompt, {.add_special = true, .parse_special = true});
  if (text.bos && text.add_bos && (ids.empty() || ids.front() != *text.bos)) {
    ids.insert(ids.begin(), *text.bos);
  }
  // The user may have written it too.
  if (text.bos && ids.size() > 1 && ids[0] == *text.bos && ids[1] == *text.bos) {
    ids.erase(ids.begin());
  }
  if (ids.empty() && !prompt.empty()) {
    throw UserError("the prompt: the model's vocabulary has no token for anything in it");
  }
  return ids;
}

}  // namespace quince
