// Where the chat's input lines come from: the line editor, or a list in tests.
#pragma once

#include <string>

namespace quince::cli {

struct Line {
  enum class Kind {
    text,       // a line, which may hold newlines (pasted, or typed with Alt-Enter)
    interrupt,  // Ctrl-C; text is what had been typed
    end,        // Ctrl-D on an empty line, or the input is closed
  };
  Kind kind = Kind::end;
  std::string text;
};

class LineSource {
 public:
  virtual ~LineSource() = default;
  virtual Line read(const std::string& prompt) = 0;
};

}  // namespace quince::cli
