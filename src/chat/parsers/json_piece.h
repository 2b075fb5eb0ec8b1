// One JSON object or list on its way through: where it ends, without being taken apart.
#pragma once

#include <string_view>

namespace quince {

class JsonPiece {
 public:
  // How much of the text belongs to it: all, or up to its last bracket.
  size_t add(std::string_view text) {
    size_t taken = 0;
    while (taken < text.size() && !ended_) {
      const char c = text[taken++];
      if (in_string_) {
        in_string_ = escaped_ || c != '"';
        escaped_ = !escaped_ && c == '\\';
      } else if (c == '"') {
        in_string_ = true;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if (c == '}' || c == ']') {
        ended_ = --depth_ <= 0;
      }
    }
    return taken;
  }
  bool ended() const {
    return ended_;
  }

 private:
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool ended_ = false;
};

}  // namespace quince
