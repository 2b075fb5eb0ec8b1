#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace quince::cli {

bool stdin_is_terminal() {
  return isatty(STDIN_FILENO) != 0;
}

bool stdout_is_terminal() {
  return isatty(STDOUT_FILENO) != 0;
}

bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) != 0;
}

int terminal_width() {
  for (int descriptor : {STDERR_FILENO, STDOUT_FILENO}) {
    winsize size{};
    if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      return size.ws_col;
    }
  }
  return 80;
}

void write_stdout(std::string_view text) {
  while (!text.empty()) {
    ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    if (errno == EINTR) {
      continue;
    }
    if (errno == EPIPE) {
      throw OutputClosed();
    }
    throw UserError("cannot write to standard output: {}", std::strerror(errno));
  }
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); i++) {
    auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
      continue;
    }
    // C1 controls (U+0080 to U+009F) are C2 80 to C2 9F in UTF-8; some terminals obey them.
    if (byte == 0xc2 && i + 1 < text.size()) {
      auto next = static_cast<unsigned char>(text[i + 1]);
      if (next >= 0x80 && next <= 0x9f) {
        out += fmt::format("\\u{:04x}", next);
        i++;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

void TextOutput::write(std::string_view text) {
  if (text.empty()) {
    return;
  }
  if (terminal_) {
    write_stdout(printable(text));
  } else {
    write_stdout(text);
  }
  at_line_start_ = text.back() == '\n';
}

void TextOutput::end_line() {
  if (!at_line_start_) {
    write_stdout("\n");
    at_line_start_ = true;
  }
}

}  // namespace quince::cli
