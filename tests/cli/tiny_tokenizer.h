// A byte-level tokenizer without merges: one token a byte, in GPT-2's spelling, then the special
// tokens <s> 256 and </s> 257.
#pragma once

#include <string>

#include "tokenizer/tokenizer.h"

namespace quince::test {

// GPT-2 writes byte b as itself where it is printable, else as the next free code point from
// U+0100.
inline std::string byte_text(int byte) {
  auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; b++) {
      code += printable(b) ? 0 : 1;
    }
  }
  std::string text;
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else {
    text += static_cast<char>(0xc0 | (code >> 6));
    text += static_cast<char>(0x80 | (code & 0x3f));
  }
  return text;
}

inline std::string tiny_tokenizer_json() {
  std::string vocabulary;
  for (int byte = 0; byte < 256; byte++) {
    std::string text = byte_text(byte);
    std::string escaped = text == "\"" || text == "\\" ? "\\" + text : text;
    vocabulary += (byte == 0 ? "" : ",") + ("\"" + escaped + "\":") + std::to_string(byte);
  }
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[
    {"id":256,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
    {"id":257,"content":"</s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
    "normalizer":null,
    "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},
    "post_processor":null,
    "decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},
    "model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,
      "end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,
      "vocab":{)" +
         vocabulary + R"(},"merges":[]}})";
}

inline Tokenizer tiny_tokenizer() {
  return Tokenizer(tiny_tokenizer_json(), "tiny");
}

}  // namespace quince::test
