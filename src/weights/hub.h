// The local model store: the cache layout that huggingface_hub and its friends share, and the names
// people use for models. Nothing here goes to the network (see weights/download.h).
//
//   <cache>/models--org--name/refs/main            text: a commit id
//   <cache>/models--org--name/snapshots/<commit>/  the repository's files, symbolic links into
//   <cache>/models--org--name/blobs/<etag>         the bytes
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quince {

// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder();

// "org/name", optionally "org/name:quant" or "org/name:file.gguf". quant: empty when absent.
struct RepoName {
  std::string id;     // "org/name"
  std::string quant;  // "Q4_K_M"
};
// Nothing when text cannot be a repository name (see the hub's rules: letters, digits, '-', '_',
// '.').
std::optional<RepoName> parse_repo_name(std::string_view text);

std::filesystem::path repo_folder(const std::filesystem::path& cache, std::string_view repo_id);

// The snapshot that refs/<revision> points to, when it is there.
std::optional<std::filesystem::path> find_snapshot(
    const std::filesystem::path& cache,
    std::string_view repo_id,
    std::string_view revision = "main");

// The GGUF file in a snapshot that a quant name means ("q4_k_m": the .gguf whose name contains it
// as a whole word, any case; of a split set the first part). Empty quant: the only model there,
// else a UserError that lists the choices. names: paths relative to the snapshot.
std::string choose_gguf(
    const std::vector<std::string>& names, std::string_view quant, std::string_view source);

// A repository or folder is taken for GGUF when it has such files and not both config.json and
// safetensors in its root.
bool prefers_gguf(const std::vector<std::string>& names);

// Files of a directory below it, relative, '/'-separated, sorted; links followed.
std::vector<std::string> list_files(const std::filesystem::path& folder);

// Short names: the built-in ones and those in <config>/quince/aliases, lines "name = target" ('#'
// begins a comment). <config>: XDG_CONFIG_HOME or ~/.config. Targets: anything MODEL may be.
std::map<std::string, std::string> model_aliases();

// Where MODEL lies: an existing path wins, then an alias, then a repository in the cache. Throws a
// UserError that says what to do ("quince pull org/name").
std::filesystem::path resolve_model(const std::string& model);

}  // namespace quince
