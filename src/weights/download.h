// Downloads a model from a Hugging-Face-compatible hub into the local cache (see weights/hub.h for
// its layout): only the files that are needed, in parallel ranges, continued after an interruption,
// checked against the hub's checksums. Every file appears in the cache whole or not at all, and the
// snapshot is named in refs/ when all of them are there.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "weights/hub_client.h"

namespace quince {

struct PullProgress {
  uint64_t done = 0;   // bytes of all files, those there already included
  uint64_t total = 0;  // 0: not known yet
  std::string file;    // one that is being fetched
};

struct PullOptions {
  std::string model;  // "org/name", "org/name:Q4_K_M" or an alias
  std::string revision = "main";
  std::filesystem::path cache;  // empty: hub_cache_folder()
  HubAccess hub;                // HubAccess::from_environment()
  int connections = 8;          // at once, over all files
  // Of one range request at most; connections * 2 of them may be in memory.
  uint64_t segment_bytes = 8u << 20;
  int attempts = 6;                            // without progress, for one range
  std::chrono::milliseconds retry_delay{500};  // doubles each time
  // Called on the pulling thread about ten times a second. What it throws ends the pull; what was
  // fetched stays and is continued by the next one.
  std::function<void(const PullProgress&)> progress;
};

struct PullResult {
  std::filesystem::path path;  // what open_model takes: the snapshot, or the GGUF file in it
  std::string commit;
  uint64_t bytes = 0;       // of all files of the model
  uint64_t downloaded = 0;  // in this call
  std::vector<std::string> files;
};

// Throws UserError: not found, gated, bad token, no network, disk full, wrong checksum, ...
PullResult pull_model(const PullOptions& options);

// Which files of a repository a model consists of. names: all of its files. quant: of a GGUF file
// ("Q4_K_M", or the file's name); empty: safetensors where there are any, else the only GGUF model
// or the Q4_K_M one. Throws UserError when nothing fits, listing what there is.
std::vector<std::string> needed_files(
    const std::vector<std::string>& names, std::string_view quant, std::string_view repo);

}  // namespace quince
