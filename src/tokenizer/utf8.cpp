#include "tokenizer/utf8.h"

namespace quince {

namespace {
constexpr std::string_view kReplacement = "\xef\xbf\xbd";
}

// The decoder of the WHATWG encoding standard.
void Utf8Assembler::begin(unsigned char byte, std::string& out) {
  low_ = 0x80;
  high_ = 0xbf;
  if (byte < 0x80) {
    out.push_back(static_cast<char>(byte));
    return;
  }
  if (byte >= 0xc2 && byte <= 0xdf) {
    missing_ = 1;
  } else if (byte >= 0xe0 && byte <= 0xef) {
    missing_ = 2;
    low_ = byte == 0xe0 ? 0xa0 : 0x80;   // no overlong forms
    high_ = byte == 0xed ? 0x9f : 0xbf;  // no surrogates
  } else if (byte >= 0xf0 && byte <= 0xf4) {
    missing_ = 3;
    low_ = byte == 0xf0 ? 0x90 : 0x80;
    high_ = byte == 0xf4 ? 0x8f : 0xbf;  // nothing above U+10FFFF
  } else {
    out += kReplacement;
    return;
  }
  pending_.assign(1, static_cast<char>(byte));
}

void Utf8Assembler::add(std::string_view bytes, std::string& out) {
  for (char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (missing_ == 0) {
      begin(byte, out);
      continue;
    }
    if (byte < low_ || byte > high_) {
      finish(out);
      begin(byte, out);
      continue;
    }
    low_ = 0x80;
    high_ = 0xbf;
    pending_.push_back(c);
    if (--missing_ == 0) {
      out += pending_;
      pending_.clear();
    }
  }
}

void Utf8Assembler::finish(std::string& out) {
  if (missing_ > 0) {
    out += kReplacement;
    missing_ = 0;
    pending_.clear();
  }
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  Utf8Assembler assembler;
  assembler.add(bytes, out);
  assembler.finish(out);
  return out;
}

bool is_valid_utf8(std::string_view bytes) {
  size_t ascii = 0;
  while (ascii < bytes.size() && static_cast<unsigned char>(bytes[ascii]) < 0x80) {
    ++ascii;
  }
  // A text that held U+FFFD itself comes back unchanged; a broken one never does.
  return ascii == bytes.size() || to_valid_utf8(bytes) == bytes;
}

size_t valid_utf8_bytes(std::string_view bytes) {
  const std::string mended = to_valid_utf8(bytes);
  size_t at = 0;
  while (at < bytes.size() && at < mended.size() && bytes[at] == mended[at]) {
    ++at;
  }
  // What is broken may begin as the character that stands for it does.
  while (at < bytes.size() && at > 0 && (static_cast<unsigned char>(mended[at]) & 0xc0) == 0x80) {
    --at;
  }
  return at;
}

}  // namespace quince
