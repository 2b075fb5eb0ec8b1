// The interactive prompt: editing keys, a history that lasts, completion of commands, and pasting
// of several lines at once (bracketed paste). On top of libedit, which macOS ships and Linux
// packages.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/line_source.h"

namespace quince::cli {

class LineEditor : public LineSource {
 public:
  // history: file that is read now and written by every line; empty: none. completions: words that
  // Tab completes at the beginning of a line.
  LineEditor(std::filesystem::path history, std::vector<std::string> completions);
  ~LineEditor() override;
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  Line read(const std::string& prompt) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// QUINCE_HISTORY when set (empty: no history), else $XDG_STATE_HOME/quince/chat_history, else
// ~/.local/state/quince/chat_history. Creates the folder. Empty when there is no home.
std::filesystem::path default_history_file();

}  // namespace quince::cli
