// A model ready to answer: its text side and its engine, loaded at the same time on two threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/compute_flags.h"
#include "cli/prompt.h"
#include "cli/settings.h"
#include "engine/engine.h"

namespace quince::cli {

struct LoadedModel {
  std::string name;  // what the user called it
  TextSide text;
  boost::json::object generation_config;
  std::unique_ptr<Engine> engine;
  std::vector<std::string> notes;  // lines the user should see
  double load_seconds = 0;
};

struct LoadRequest {
  std::string model;
  ComputeFlags compute;
  DraftFlags draft;
  EngineOptions engine;
  TextOptions text;
  bool quiet = false;                             // no progress bar
  std::function<void(double fraction)> progress;  // also told; on the engine's thread
};

// Throws UserError.
LoadedModel load(const LoadRequest& request);

}  // namespace quince::cli
