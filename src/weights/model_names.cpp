#include "weights/model_names.h"

#include <algorithm>
#include <set>

#include "base/closest.h"
#include "base/environment.h"
#include "base/error.h"
#include "weights/gguf.h"
#include "weights/hub.h"
#include "weights/json_file.h"

namespace quince {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostAliasBytes = 1 << 20;

// Models that quince's own documentation speaks of.
const std::pair<const char*, const char*> kBuiltInAliases[] = {
    {"gemma3-270m", "ggml-org/gemma-3-270m-it-GGUF"},
    {"llama3.2-1b", "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"},
    {"qwen3-0.6b", "Qwen/Qwen3-0.6B-GGUF"},
    {"smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct"},
    {"smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF"},
};

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) {
    return "";
  }
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return result;
}

// Folders and GGUF files beside each other.
std::vector<std::string> models_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ec;
  for (auto at = fs::directory_iterator(folder, ec); !ec && at != fs::directory_iterator();
       at.increment(ec)) {
    std::error_code ignored;
    if (at->path().extension() == ".gguf" || at->is_directory(ignored)) {
      names.push_back(at->path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The name that may have been meant: a slip of the fingers, another case, or the beginning only.
std::optional<std::string> meant(const std::string& word, const std::vector<std::string>& names) {
  if (auto near = closest(word, names)) {
    return near;
  }
  constexpr size_t kTellsEnough = 3;
  for (const std::string& name : names) {
    if (word.size() >= kTellsEnough && lower(name).find(lower(word)) != std::string::npos) {
      return name;
    }
  }
  return std::nullopt;
}

std::string did_you_mean(const std::optional<std::string>& name) {
  return name ? "; did you mean " + *name + "?" : "";
}

[[noreturn]] void refuse_path(const fs::path& path) {
  std::optional<std::string> near = meant(path.filename().string(), models_in(path.parent_path()));
  if (near) {
    near = (path.parent_path() / *near).string();
  }
  throw UserError("{}: no such file or directory{}", path.string(), did_you_mean(near));
}

[[noreturn]] void refuse_word(const std::string& word, const std::vector<std::string>& aliases) {
  std::vector<std::string> names = models_in(".");
  names.insert(names.end(), aliases.begin(), aliases.end());
  throw UserError(
      "{}: no such file or directory, and neither an alias nor a repository name as org/name{} "
      "(quince list shows what there is)",
      word,
      did_you_mean(meant(word, names)));
}

[[noreturn]] void refuse_repository(const std::string& model) {
  std::vector<std::string> names;
  for (const CachedModel& cached : cached_models()) {
    names.push_back(cached.name);
  }
  const fs::path folder = fs::path(model).parent_path();  // "org", or a folder by that name
  for (const std::string& name : models_in(folder)) {
    names.push_back((folder / name).string());
  }
  throw UserError(
      "{}: no such file or directory, and not in the hub cache {}; fetch it with: quince pull {}{}",
      model,
      hub_cache_folder().string(),
      model,
      did_you_mean(closest(model, names)));
}

// "./x", "/x", "a/b/c" and "x.gguf" can be nothing else.
bool is_surely_path(const std::string& model) {
  return model.ends_with(".gguf") || model.starts_with('.') || model.starts_with('/') ||
         std::count(model.begin(), model.end(), '/') > 1;
}

fs::path resolve(const std::string& model, std::set<std::string>& seen) {
  if (model.empty()) {
    throw UserError(
        "the model's name is empty: want a GGUF file, a directory, or a name as org/name");
  }
  std::error_code ec;
  if (fs::exists(model, ec)) {
    return model;
  }
  const auto repo = parse_repo_name(model);
  if (!repo) {
    const auto aliases = model_aliases();
    if (const auto alias = aliases.find(model); alias != aliases.end()) {
      if (!seen.insert(model).second) {
        throw UserError("{}: the alias leads back to itself", model);
      }
      return resolve(alias->second, seen);
    }
    if (is_surely_path(model)) {
      refuse_path(model);
    }
    std::vector<std::string> names;
    for (const auto& [name, target] : aliases) {
      names.push_back(name);
    }
    refuse_word(model, names);
  }
  const auto snapshot = find_snapshot(hub_cache_folder(), repo->id);
  if (!snapshot) {
    if (is_surely_path(model)) {
      refuse_path(model);
    }
    refuse_repository(model);
  }
  const std::vector<std::string> files = list_files(*snapshot);
  if (repo->quant.empty() && !prefers_gguf(files)) {
    return *snapshot;
  }
  try {
    return *snapshot / choose_gguf(files, repo->quant, repo->id);
  } catch (const UserError& error) {
    if (repo->quant.empty()) {
      throw;
    }
    throw UserError("{}; fetch it with: quince pull {}", error.what(), model);
  }
}

bool means(
    const std::string& quant,
    const std::vector<std::string>& names,
    const std::string& file,
    const std::string& id) {
  try {
    return !quant.empty() && choose_gguf(names, quant, id) == file;
  } catch (const UserError&) {  // several have it
    return false;
  }
}

// How to name one of several GGUF models of a repository: by the quantization where only one has
// it ("m-Q4_K_M.gguf": "Q4_K_M"), else by the file.
std::string quant_name(
    const std::vector<std::string>& names, const std::string& file, const std::string& id) {
  const auto part = gguf_part_name(file);
  std::string stem = part ? part->stem : fs::path(file).stem().string();
  stem = stem.substr(stem.find_last_of("-./") + 1);
  return means(stem, names, file, id) ? stem : file;
}

uint64_t file_bytes(const fs::path& path) {
  std::error_code ec;
  const auto size = fs::file_size(path, ec);
  return ec ? 0 : size;
}

uint64_t gguf_bytes(
    const fs::path& folder, const std::vector<std::string>& names, const std::string& first) {
  const auto part = gguf_part_name(first);
  uint64_t bytes = 0;
  for (const std::string& name : names) {
    const auto other = gguf_part_name(name);
    if (name == first || (part && other && other->stem == part->stem)) {
      bytes += file_bytes(folder / name);
    }
  }
  return bytes;
}

void add_models(std::vector<CachedModel>& out, const std::string& id, const fs::path& snapshot) {
  const std::vector<std::string> names = list_files(snapshot);
  if (!prefers_gguf(names)) {
    CachedModel model{id, snapshot, "safetensors"};
    bool weights = false;
    for (const std::string& name : names) {
      weights = weights || name.ends_with(".safetensors");
      model.bytes += file_bytes(snapshot / name);
    }
    if (weights) {
      out.push_back(std::move(model));
    }
    return;
  }
  const std::vector<std::string> models = gguf_models(names);
  for (const std::string& file : models) {
    const std::string name = models.size() > 1 ? id + ":" + quant_name(names, file, id) : id;
    out.push_back({name, snapshot / file, "gguf", gguf_bytes(snapshot, names, file)});
  }
}

std::optional<fs::path> sound_snapshot(const fs::path& cache, const std::string& id) {
  try {
    return find_snapshot(cache, id);
  } catch (const UserError&) {  // a damaged reference: not a model that could be run
    return std::nullopt;
  }
}

}  // namespace

fs::path alias_file() {
  const fs::path config = environment_path("XDG_CONFIG_HOME").value_or(home_folder() / ".config");
  return config / "quince" / "aliases";
}

std::map<std::string, std::string> model_aliases() {
  std::map<std::string, std::string> aliases(
      std::begin(kBuiltInAliases), std::end(kBuiltInAliases));
  const fs::path path = alias_file();
  const auto text = read_text_file_if_any(path, kMostAliasBytes);
  if (!text) {
    return aliases;
  }
  size_t begin = 0;
  for (int number = 1; begin < text->size(); ++number) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    std::string line = text->substr(begin, end - begin);
    begin = end + 1;
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) {
      continue;
    }
    const size_t equals = line.find('=');
    const std::string name = equals == std::string::npos ? "" : trimmed(line.substr(0, equals));
    const std::string target = equals == std::string::npos ? "" : trimmed(line.substr(equals + 1));
    if (name.empty() || target.empty() || parse_repo_name(name)) {  // a repository is itself
      throw UserError(
          "{}: line {}: want \"name = model\", the name without a /, found \"{}\"",
          path.string(),
          number,
          line);
    }
    aliases[name] = target;
  }
  return aliases;
}

fs::path resolve_model(const std::string& model) {
  std::set<std::string> seen;
  return resolve(model, seen);
}

std::vector<CachedModel> cached_models() {
  constexpr std::string_view kPrefix = "models--";
  std::vector<CachedModel> models;
  const fs::path cache = hub_cache_folder();
  std::error_code ec;
  for (auto at = fs::directory_iterator(cache, ec); !ec && at != fs::directory_iterator();
       at.increment(ec)) {
    const std::string folder = at->path().filename().string();
    const size_t split = folder.find("--", kPrefix.size());
    if (!folder.starts_with(kPrefix) || split == std::string::npos) {
      continue;
    }
    const std::string id =
        folder.substr(kPrefix.size(), split - kPrefix.size()) + "/" + folder.substr(split + 2);
    if (const auto snapshot = sound_snapshot(cache, id)) {
      add_models(models, id, *snapshot);
    }
  }
  std::sort(models.begin(), models.end(), [](const CachedModel& a, const CachedModel& b) {
    return a.name < b.name;
  });
  return models;
}

}  // namespace quince
