// The bridge's side of a Tokenizer, for the one other folder that talks to the bridge (chat).
#pragma once

struct qb_tokenizer;

namespace quince {

class Tokenizer;
const qb_tokenizer* tokenizer_handle(const Tokenizer& tokenizer);

}  // namespace quince
