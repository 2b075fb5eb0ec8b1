// Bytes that should be UTF-8 made into text that is. Broken sequences become one U+FFFD each, cut
// as the Unicode standard recommends (the longest part that could have begun a character).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quince {

// Takes bytes in any cuts and gives back whole characters.
class Utf8Assembler {
 public:
  // Appends to out every character that is complete after these bytes.
  void add(std::string_view bytes, std::string& out);
  // Appends U+FFFD when a character was begun and not ended.
  void finish(std::string& out);

 private:
  void begin(unsigned char byte, std::string& out);
  std::string pending_;
  int missing_ = 0;                         // bytes that the pending character lacks
  unsigned char low_ = 0x80, high_ = 0xbf;  // the next byte must lie between
};

std::string to_valid_utf8(std::string_view bytes);
bool is_valid_utf8(std::string_view bytes);
// The bytes before the first that is part of no character; all of them when they are valid.
size_t valid_utf8_bytes(std::string_view bytes);

}  // namespace quince
