// Standard output and error, and what they are connected to. One thread writes at a time.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace quince::cli {

// Nobody reads our standard output any more (`quince ... | head`): the program ends quietly.
struct OutputClosed : std::runtime_error {
  OutputClosed() : std::runtime_error("standard output was closed") {}
};

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();
int terminal_width();  // columns of the terminal behind stderr or stdout; 80 when there is none

// Writes all of it, unbuffered. Throws OutputClosed, or UserError with the cause (disk full, ...).
void write_stdout(std::string_view text);

// Text from a model or a file as a terminal may show it: control characters other than newline and
// tab become visible ("\x1b"), so that nobody but us steers the terminal. Valid UTF-8 in and out.
std::string printable(std::string_view text);

// While it lives, what is typed does not show: neither "^C" nor a next question typed ahead belongs
// into the middle of an answer. It is read later. At most one at a time.
class HiddenTyping {
 public:
  HiddenTyping();
  ~HiddenTyping();
  HiddenTyping(const HiddenTyping&) = delete;
  HiddenTyping& operator=(const HiddenTyping&) = delete;
};

// Whether the terminal behind standard input and output obeys escape sequences.
bool has_escapes();

// Asks the terminal to mark what is pasted, so that its newlines do not end a message. No effect
// without a terminal that can.
void mark_pastes(bool on);

// Undoes both: for a signal handler that is about to end the program (async-signal-safe).
void restore_terminal();

// Shows streamed text on standard output: printable() when that is a terminal, unchanged otherwise.
class TextOutput {
 public:
  TextOutput() : terminal_(stdout_is_terminal()) {}
  void write(std::string_view text);
  // Begins a new line unless one has just begun.
  void end_line();

 private:
  bool terminal_;
  bool at_line_start_ = true;
};

}  // namespace quince::cli
