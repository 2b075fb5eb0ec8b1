// The names people use for models: paths, aliases, and repositories in the local cache (see
// weights/hub.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace quince {

// <config>/quince/aliases, lines "name = target" ('#' begins a comment). <config>: XDG_CONFIG_HOME
// or ~/.config. Targets: anything MODEL may be. It need not exist.
std::filesystem::path alias_file();

// Short names: the built-in ones and those in alias_file(), which win. Throws UserError.
std::map<std::string, std::string> model_aliases();

// Where MODEL lies: an existing path wins, then an alias, then a repository in the cache. Throws a
// UserError that says what to do ("quince pull org/name") and which name may have been meant.
std::filesystem::path resolve_model(const std::string& model);

struct CachedModel {
  std::string name;            // what resolve_model() takes: "org/name", "org/name:Q4_K_M"
  std::filesystem::path path;  // the snapshot, or the (first) GGUF file in it
  std::string container;       // "safetensors" or "gguf"
  uint64_t bytes = 0;          // of the model's files
};
// Every model in the cache, sorted by name. Opens no model, so a broken one is listed too.
std::vector<CachedModel> cached_models();

}  // namespace quince
