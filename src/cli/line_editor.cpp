#include "cli/line_editor.h"

#include <histedit.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <optional>

#include <fmt/format.h>

#include "cli/interrupts.h"
#include "cli/key_reader.h"
#include "cli/terminal.h"

namespace quince::cli {

namespace {

constexpr int kHistoryLength = 1000;
constexpr size_t kMostHistoryBytes = 4096;  // of one entry
constexpr int kMostPastedLines = 8;         // more are shown as a place holder
constexpr wchar_t kControlC = 3;

// libedit decodes what is typed by the locale, and a container often has none.
void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX > 1) {
    return;
  }
  for (const char* name : {"C.UTF-8", "en_US.UTF-8", "UTF-8"}) {
    if (std::setlocale(LC_CTYPE, name) != nullptr && MB_CUR_MAX > 1) {
      return;
    }
  }
}

void append_utf8(std::string& out, wchar_t wide) {
  auto c = static_cast<uint32_t>(wide);
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

}  // namespace

struct LineEditor::Impl {
  KeyReader keys;
  IdleInterrupts interrupts{keys.wake_descriptor()};
  std::optional<HiddenTyping> hidden{std::in_place};  // outlives `edit`, which goes back to it
  EditLine* edit = nullptr;
  History* past = nullptr;
  std::filesystem::path history_file;
  std::vector<std::string> completions;
  std::string prompt;
  bool interrupted = false;
  std::string interrupted_text;
  // A long paste stands in the line as "[pasted 120 lines]"; this is what it stands for.
  struct Paste {
    std::string holder;
    std::string text;
  };
  std::vector<Paste> pastes;

  static Impl& of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<Impl*>(self);
  }

  static char* show_prompt(EditLine* edit) {
    return of(edit).prompt.data();
  }

  std::string typed() const {
    const LineInfo* line = el_line(edit);
    return std::string(line->buffer, static_cast<size_t>(line->lastchar - line->buffer));
  }

  // One character for libedit. Its own reader would resize its buffers within a signal handler, and
  // then write beyond them when the cursor stood where the new size has no column.
  static int read_key(EditLine* edit, wchar_t* key) {
    Impl& self = of(edit);
    while (true) {
      switch (self.keys.read(*key)) {
        case KeyReader::Event::key:
          return 1;
        case KeyReader::Event::interrupt:
          *key = kControlC;
          return 1;
        case KeyReader::Event::end:
          return 0;
        case KeyReader::Event::resized:
          self.redraw();
          break;
        case KeyReader::Event::continued:
          self.take_terminal();
          break;
      }
    }
  }

  // Draws everything anew. libedit must have its cursor in the corner when it learns of a new size.
  void redraw() {
    const LineInfoW* line = el_wline(edit);
    std::wstring text(line->buffer, line->lastchar);
    int behind = static_cast<int>(line->lastchar - line->cursor);
    std::string shown_prompt = std::exchange(prompt, "");
    el_cursor(edit, behind);
    el_deletestr(edit, static_cast<int>(text.size()));
    write_stdout(has_escapes() ? "\r\x1b[J" : "\r\n");
    el_set(edit, EL_REFRESH);
    el_resize(edit);
    prompt = std::move(shown_prompt);
    el_winsertstr(edit, text.c_str());
    el_cursor(edit, -behind);
    el_set(edit, EL_REFRESH);
  }

  // Somebody else had the terminal and left it as he likes it.
  void take_terminal() {
    el_set(edit, EL_PREP_TERM, 0);
    el_set(edit, EL_PREP_TERM, 1);
    mark_pastes(false);
    mark_pastes(true);
    redraw();
  }

  static unsigned char on_interrupt(EditLine* edit, int) {
    Impl& self = of(edit);
    self.interrupted = true;
    self.interrupted_text = self.typed();
    return CC_NEWLINE;
  }

  static unsigned char on_suspend(EditLine* edit, int) {
    Impl& self = of(edit);
    el_set(edit, EL_PREP_TERM, 0);
    mark_pastes(false);
    self.hidden.reset();
    kill(0, SIGTSTP);  // the whole job, as the terminal would have done
    self.hidden.emplace();
    self.take_terminal();
    return CC_NORM;
  }

  static unsigned char on_newline(EditLine* edit, int) {
    return el_insertstr(edit, "\n") == 0 ? CC_REFRESH : CC_ERROR;
  }

  static unsigned char on_paste(EditLine* edit, int) {
    Impl& self = of(edit);
    static constexpr std::wstring_view kEnd = L"\x1b[201~";
    std::wstring text;
    wchar_t c = 0;
    while (el_wgetc(edit, &c) == 1) {
      text += c == L'\r' ? L'\n' : c;
      if (text.ends_with(kEnd)) {
        text.resize(text.size() - kEnd.size());
        break;
      }
    }
    // Other control characters have no business in a message and would confuse the display.
    std::erase_if(
        text, [](wchar_t w) { return (w < 0x20 && w != L'\n' && w != L'\t') || w == 0x7f; });
    if (text.empty()) {
      return CC_REFRESH;
    }
    auto lines = std::count(text.begin(), text.end(), L'\n') + 1;
    if (lines > kMostPastedLines) {
      Paste paste;
      for (wchar_t w : text) {
        append_utf8(paste.text, w);
      }
      paste.holder = fmt::format("[pasted {} lines]", lines);
      for (int number = 2; self.has_holder(paste.holder); number++) {
        paste.holder = fmt::format("[pasted {} lines, {}]", lines, number);
      }
      self.pastes.push_back(paste);
      return el_insertstr(edit, paste.holder.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    }
    return el_winsertstr(edit, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  static unsigned char on_complete(EditLine* edit, int) {
    Impl& self = of(edit);
    const LineInfo* line = el_line(edit);
    std::string head(line->buffer, static_cast<size_t>(line->cursor - line->buffer));
    std::string common;
    int matches = 0;
    for (const std::string& word : self.completions) {
      if (head.empty() || !word.starts_with(head)) {
        continue;
      }
      if (matches++ == 0) {
        common = word;
      } else {
        auto ends = std::mismatch(common.begin(), common.end(), word.begin(), word.end());
        common.erase(ends.first, common.end());
      }
    }
    if (matches == 0) {
      return CC_REFRESH_BEEP;
    }
    std::string rest = common.substr(head.size()) + (matches == 1 ? " " : "");
    if (rest.empty() || el_insertstr(edit, rest.c_str()) != 0) {
      return CC_REFRESH_BEEP;
    }
    return CC_REFRESH;
  }

  bool has_holder(const std::string& holder) const {
    return std::any_of(
        pastes.begin(), pastes.end(), [&](const Paste& paste) { return paste.holder == holder; });
  }

  std::string with_pastes(std::string line) {
    for (const Paste& paste : pastes) {
      size_t at = line.find(paste.holder);
      if (at != std::string::npos) {
        line.replace(at, paste.holder.size(), paste.text);
      }
    }
    pastes.clear();
    return line;
  }

  void remember(const std::string& line) {
    if (line.empty() || line.size() > kMostHistoryBytes ||
        line.find_first_not_of(" \t\n") == std::string::npos) {
      return;
    }
    HistEvent event;
    history(past, &event, H_ENTER, line.c_str());
    if (!history_file.empty()) {
      history(past, &event, H_SAVE, history_file.c_str());  // no history is no reason to stop
    }
  }
};

LineEditor::LineEditor(std::filesystem::path history_file, std::vector<std::string> completions)
    : impl_(std::make_unique<Impl>()) {
  use_utf8_locale();
  Impl& self = *impl_;
  self.history_file = std::move(history_file);
  self.completions = std::move(completions);
  self.past = history_init();
  HistEvent event;
  history(self.past, &event, H_SETSIZE, kHistoryLength);
  history(self.past, &event, H_SETUNIQUE, 1);
  if (!self.history_file.empty()) {
    history(self.past, &event, H_LOAD, self.history_file.c_str());
  }

  self.edit = el_init("quince", stdin, stdout, stderr);
  EditLine* edit = self.edit;
  el_set(edit, EL_CLIENTDATA, &self);
  el_set(edit, EL_PROMPT, &Impl::show_prompt);
  el_set(edit, EL_EDITOR, "emacs");
  el_wset(edit, EL_GETCFN, &Impl::read_key);
  el_set(edit, EL_HIST, history, self.past);
  // While a line is edited Ctrl-C and Ctrl-Z are keys; otherwise they are signals, which throw away
  // nothing. And otherwise, too, the terminal makes no lines of what is typed ahead: it would turn
  // Ctrl-D into nothing, and change the rest when the next line is read.
  el_set(edit, EL_SETTY, "-d", "-isig", nullptr);
  el_set(edit, EL_SETTY, "-x", "-icanon", "-echo", "-iexten", "+noflsh", nullptr);
  el_set(edit, EL_ADDFN, "quince-interrupt", "Drop the line", &Impl::on_interrupt);
  el_set(edit, EL_ADDFN, "quince-suspend", "Suspend the program", &Impl::on_suspend);
  el_set(edit, EL_ADDFN, "quince-newline", "Insert a new line", &Impl::on_newline);
  el_set(edit, EL_ADDFN, "quince-paste", "Insert what is pasted", &Impl::on_paste);
  el_set(edit, EL_ADDFN, "quince-complete", "Complete a command", &Impl::on_complete);
  el_set(edit, EL_BIND, "^C", "quince-interrupt", nullptr);
  el_set(edit, EL_BIND, "^Z", "quince-suspend", nullptr);
  el_set(edit, EL_BIND, "\x1b\r", "quince-newline", nullptr);
  el_set(edit, EL_BIND, "\x1b\n", "quince-newline", nullptr);
  el_set(edit, EL_BIND, "\x1b[200~", "quince-paste", nullptr);
  el_set(edit, EL_BIND, "^I", "quince-complete", nullptr);
  el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(edit, nullptr);  // the user's own ~/.editrc comes last
  mark_pastes(true);         // all the time: the user may paste while an answer runs
}

LineEditor::~LineEditor() {
  mark_pastes(false);
  el_end(impl_->edit);
  history_end(impl_->past);
}

Line LineEditor::read(const std::string& prompt) {
  Impl& self = *impl_;
  self.prompt = prompt;
  self.interrupted = false;
  self.interrupts.forgive();
  self.keys.forget();
  el_set(self.edit, EL_PREP_TERM, 1);  // before the prompt shows: from then on Ctrl-C is a key
  int count = 0;
  const char* typed = el_gets(self.edit, &count);
  if (self.interrupted) {
    write_stdout("\n");
    self.pastes.clear();
    return {Line::Kind::interrupt, self.interrupted_text};
  }
  if (typed == nullptr || count <= 0) {
    write_stdout("\n");
    return {Line::Kind::end, ""};
  }
  std::string line(typed, static_cast<size_t>(count));
  if (line.ends_with('\n')) {
    line.pop_back();
  }
  line = self.with_pastes(std::move(line));
  self.remember(line);
  return {Line::Kind::text, std::move(line)};
}

std::filesystem::path default_history_file() {
  if (const char* chosen = std::getenv("QUINCE_HISTORY")) {
    return chosen;
  }
  std::filesystem::path folder;
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home == '/') {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return {};
  }
  folder /= "quince";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? std::filesystem::path() : folder / "chat_history";
}

}  // namespace quince::cli
