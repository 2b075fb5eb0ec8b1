#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
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

namespace {

// A signal handler reaches nothing but statics; see restore_terminal.
termios typing_settings;
std::atomic<bool> typing_hidden = false;
std::atomic<bool> pastes_marked = false;

constexpr std::string_view kMarkPastes = "\x1b[?2004h";
constexpr std::string_view kPlainPastes = "\x1b[?2004l";

void show_typing() {
  if (typing_hidden.exchange(false)) {
    tcsetattr(STDIN_FILENO, TCSANOW, &typing_settings);
  }
}

}  // namespace

HiddenTyping::HiddenTyping() {
  termios settings{};
  // Not from the background, where changing the terminal would stop the program.
  bool ours = tcgetpgrp(STDIN_FILENO) == getpgrp();
  if (!ours || tcgetattr(STDIN_FILENO, &settings) != 0 || (settings.c_lflag & ECHO) == 0) {
    return;
  }
  typing_settings = settings;
  settings.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  typing_hidden = tcsetattr(STDIN_FILENO, TCSANOW, &settings) == 0;
}

HiddenTyping::~HiddenTyping() {
  show_typing();
}

bool has_escapes() {
  const char* kind = std::getenv("TERM");
  return stdin_is_terminal() && stdout_is_terminal() && kind != nullptr && *kind != '\0' &&
         std::string_view(kind) != "dumb";
}

void mark_pastes(bool on) {
  if (has_escapes() && pastes_marked.exchange(on) != on) {
    write_stdout(on ? kMarkPastes : kPlainPastes);
  }
}

void restore_terminal() {
  show_typing();
  if (pastes_marked.exchange(false)) {
    [[maybe_unused]] ssize_t written =
        ::write(STDOUT_FILENO, kPlainPastes.data(), kPlainPastes.size());
  }
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
