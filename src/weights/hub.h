// The local model store: the cache layout that huggingface_hub and its friends share. Nothing here
// goes to the network (see weights/download.h).
//
//   <cache>/models--org--name/refs/main            text: a commit id
//   <cache>/models--org--name/snapshots/<commit>/  the repository's files, symbolic links into
//   <cache>/models--org--name/blobs/<etag>         the bytes
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quince {

// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder();

// "org/name", optionally "org/name:quant" or "org/name:file.gguf", and all of that behind "hf.co/",
// "hf://" or "https://huggingface.co/". quant: empty when absent.
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

// The GGUF models among the files of a folder: of a split set the first part, no projectors of
// images.
std::vector<std::string> gguf_models(const std::vector<std::string>& names);

// The GGUF model of a repository that a quant name means ("q4_k_m": the .gguf whose name contains
// it as a whole word, any case). Empty quant: the only model there, else the Q4_K_M one. Throws a
// UserError that lists the choices. names: paths relative to the snapshot.
std::string choose_gguf(
    const std::vector<std::string>& names, std::string_view quant, std::string_view repo_id);

// A repository or folder is taken for GGUF when it has such files and not both config.json and
// safetensors in its root.
bool prefers_gguf(const std::vector<std::string>& names);

// Files of a directory and of the folders in it, two levels down, where models keep their variants
// (no deeper: it may be anybody's home). Relative, '/'-separated, sorted; links to files followed.
std::vector<std::string> list_files(const std::filesystem::path& folder);

}  // namespace quince
