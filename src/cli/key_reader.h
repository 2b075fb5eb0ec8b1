// What somebody types who is editing a line, one character at a time, and what happens to the
// terminal meanwhile. At most one lives at a time.
#pragma once

#include "cli/interrupts.h"

namespace quince::cli {

class KeyReader {
 public:
  enum class Event {
    key,
    end,  // the terminal is gone
    interrupt,
    resized,
    continued,  // after a stop, in which somebody else may have used the terminal
  };

  KeyReader();
  ~KeyReader();
  KeyReader(const KeyReader&) = delete;
  KeyReader& operator=(const KeyReader&) = delete;

  // Waits. key is set for Event::key only, from UTF-8; what is none is skipped.
  Event read(wchar_t& key);

  void forget();  // the events that have come until now

  // Gets a byte for every interrupt that shall become an event (async-signal-safe).
  int wake_descriptor() const {
    return write_end_;
  }

 private:
  int read_end_ = -1;
  int write_end_ = -1;
  std::optional<SignalHandlers> handlers_;
};

}  // namespace quince::cli
