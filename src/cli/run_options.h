// Everything `quince run` can be told on its command line.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/compute_flags.h"
#include "cli/settings.h"
#include "engine/engine.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quince::cli {

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt;  // absent: standard input when piped, else a chat
  std::optional<std::string> file;    // its text follows the prompt
  std::optional<std::string> system;
  bool raw = false;
  bool json = false;
  bool verbose = false;
  bool quiet = false;
  std::optional<std::string> template_file;
  std::optional<std::string> template_values;  // JSON object
  std::vector<std::string> end_tokens;
  bool ignore_end = false;
  std::optional<int> logprobs;  // likeliest tokens to report beside each token's log probability
  std::optional<ConstraintSpec> form;       // of the answers
  std::optional<std::string> prompt_cache;  // a file that the prompt follows
  EngineOptions engine;
  ComputeFlags compute;
  DraftFlags draft;
  // In the order of the settings table; applied over the model's own defaults once these are known.
  std::vector<std::pair<const Setting*, std::string>> settings;
};

// What the parser fills; finish() gives the options or throws UserError about flags that do not go
// together.
class RunFlags {
 public:
  explicit RunFlags(CLI::App& app);
  RunOptions finish() const;

 private:
  RunOptions options_;
  std::optional<std::string> first_;   // MODEL, or PROMPT after --model
  std::optional<std::string> second_;  // PROMPT
  std::optional<std::string> model_flag_;
  std::optional<std::string> prompt_flag_;
  std::optional<std::string> system_file_;
};

}  // namespace quince::cli
