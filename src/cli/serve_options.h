// Everything `quince serve` can be told on its command line.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/compute_flags.h"
#include "cli/settings.h"
#include "engine/engine.h"
#include "server/app.h"
#include "server/http.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quince::cli {

struct ServeOptions {
  std::string model;
  std::vector<std::string> aliases;  // the first one is the model's name
  server::HttpOptions http;
  server::AppOptions app;
  EngineOptions engine;
  ComputeFlags compute;
  DraftFlags draft;
  std::optional<std::string> template_file;
  std::optional<std::string> template_values;  // JSON object
  std::optional<std::string> prompt_cache;     // a file; known to all requests
  std::vector<std::string> end_tokens;
  bool ignore_end = false;
  Pooling pooling = Pooling::last;
  int reasoning_budget = -1;
  bool quiet = false;
  std::vector<std::string> keys;              // of --api-key; in `app` are those of the file too
  std::optional<std::string> key_file;        // of --api-key-file
  std::optional<std::string> gateway_config;  // quince.toml
  std::string log_format;                     // "json", "text", or "": none
  bool log_prompts = false;
  std::optional<std::string> log_file;
  double drain_seconds = 30;
  // In the order of the settings table; applied over the model's own defaults once these are known.
  std::vector<std::pair<const Setting*, std::string>> settings;
};

// The keys that were given, and those that are in the file now. Throws UserError.
std::vector<std::string> all_keys(const ServeOptions& options);

// What the parser fills; finish() gives the options or throws UserError about flags that do not go
// together.
class ServeFlags {
 public:
  enum class Kind { model, gateway };  // gateway: no model, and no flags about one
  explicit ServeFlags(CLI::App& app, Kind kind = Kind::model);
  ServeOptions finish() const;

 private:
  void add_http(CLI::App& app);
  void add_engine(CLI::App& app);
  void add_answers(CLI::App& app);

  void add_gateway(CLI::App& app);

  const Kind kind_;
  ServeOptions options_;
  std::optional<std::string> model_;
  std::optional<std::string> model_flag_;
  std::optional<std::string> certificate_file_;
  std::optional<std::string> certificate_key_file_;
  std::optional<std::string> slot_folder_;
  bool log_jsonl_ = false;
  bool no_slots_ = false;
  bool no_metrics_ = false;
  bool no_page_ = false;
};

}  // namespace quince::cli
