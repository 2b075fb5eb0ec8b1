#include "weights/hub.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>

#include <fmt/ranges.h>

#include "base/error.h"
#include "weights/gguf.h"
#include "weights/json_file.h"

namespace quince {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxSmallFile = 1 << 20;

std::optional<fs::path> environment_path(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) {
    return std::nullopt;
  }
  return fs::path(value);
}

fs::path home_folder() {
  return environment_path("HOME").value_or(fs::path("."));
}

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
  const size_t end = text.find_last_not_of(" \t\r\n");
  return std::string(text.substr(begin, end - begin + 1));
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return result;
}

bool is_repo_part(std::string_view part) {
  return !part.empty() && part.size() <= 96 && part.find("..") == std::string_view::npos &&
         part.front() != '.' && part.front() != '-' && part.back() != '.' && part.back() != '-' &&
         std::all_of(part.begin(), part.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

// word stands in text between characters that are no letters, digits or '_'. "q4_0" is not in
// "iq4_0_4_4" and "q4_k" not in "q4_k_m".
bool has_word(std::string_view text, std::string_view word) {
  const auto inside = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !inside(text[at - 1])) && (end == text.size() || !inside(text[end]))) {
      return true;
    }
  }
  return false;
}

}  // namespace

fs::path hub_cache_folder() {
  if (const auto folder = environment_path("HF_HUB_CACHE")) {
    return *folder;
  }
  if (const auto folder = environment_path("HUGGINGFACE_HUB_CACHE")) {
    return *folder;
  }
  if (const auto home = environment_path("HF_HOME")) {
    return *home / "hub";
  }
  const fs::path cache = environment_path("XDG_CACHE_HOME").value_or(home_folder() / ".cache");
  return cache / "huggingface" / "hub";
}

std::optional<RepoName> parse_repo_name(std::string_view text) {
  RepoName name;
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    name.quant = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (name.quant.empty() || name.quant.size() > 200) {
      return std::nullopt;
    }
  }
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || !is_repo_part(text.substr(0, slash)) ||
      !is_repo_part(text.substr(slash + 1))) {
    return std::nullopt;
  }
  name.id = text;
  return name;
}

fs::path repo_folder(const fs::path& cache, std::string_view repo_id) {
  std::string folder = "models--";
  for (const char c : repo_id) {
    if (c == '/') {
      folder += "--";
    } else {
      folder += c;
    }
  }
  return cache / folder;
}

std::optional<fs::path> find_snapshot(
    const fs::path& cache, std::string_view repo_id, std::string_view revision) {
  const fs::path folder = repo_folder(cache, repo_id);
  const auto commit = read_text_file_if_any(folder / "refs" / revision, kMaxSmallFile);
  if (!commit) {
    return std::nullopt;
  }
  const std::string id = trimmed(*commit);
  if (!is_repo_part(id)) {
    throw UserError("{}: holds no commit id", (folder / "refs" / revision).string());
  }
  const fs::path snapshot = folder / "snapshots" / id;
  return fs::is_directory(snapshot) ? std::optional(snapshot) : std::nullopt;
}

std::vector<std::string> list_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ec;
  auto at =
      fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, ec);
  for (; !ec && at != fs::recursive_directory_iterator(); at.increment(ec)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) {
      names.push_back(at->path().lexically_relative(folder).generic_string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string choose_gguf(
    const std::vector<std::string>& names, std::string_view quant, std::string_view source) {
  std::vector<std::string> models;
  for (const std::string& name : names) {
    const auto part = gguf_part_name(name);
    if (name.ends_with(".gguf") && lower(name).find("mmproj") == std::string::npos &&
        (!part || part->part == 1)) {
      models.push_back(name);
    }
  }
  if (models.empty()) {
    throw UserError("{}: holds no GGUF model", source);
  }
  std::vector<std::string> chosen = models;
  if (!quant.empty()) {
    const std::string want = lower(quant);
    std::erase_if(chosen, [&](const std::string& name) {
      return lower(name) != want && !has_word(lower(name), want);
    });
  }
  if (chosen.size() == 1) {
    return chosen.front();
  }
  if (chosen.empty()) {
    throw UserError(
        "{}: no GGUF file there is {}; it has {}", source, quant, fmt::join(models, ", "));
  }
  throw UserError(
      "{}: {} GGUF files fit{}: {}; name one as {}:QUANT",
      source,
      chosen.size(),
      quant.empty() ? "" : fmt::format(" {}", quant),
      fmt::join(chosen, ", "),
      source);
}

bool prefers_gguf(const std::vector<std::string>& names) {
  bool gguf = false;
  bool config = false;
  bool safetensors = false;
  for (const std::string& name : names) {
    const bool in_root = name.find('/') == std::string::npos;
    gguf = gguf || name.ends_with(".gguf");
    config = config || name == "config.json";
    safetensors = safetensors || (in_root && name.ends_with(".safetensors"));
  }
  return gguf && !(config && safetensors);
}

std::map<std::string, std::string> model_aliases() {
  std::map<std::string, std::string> aliases(
      std::begin(kBuiltInAliases), std::end(kBuiltInAliases));
  const fs::path config = environment_path("XDG_CONFIG_HOME").value_or(home_folder() / ".config");
  const fs::path path = config / "quince" / "aliases";
  const auto text = read_text_file_if_any(path, kMaxSmallFile);
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
    if (name.empty() || target.empty()) {
      throw UserError(
          "{}: line {}: want \"name = model\", found \"{}\"", path.string(), number, line);
    }
    aliases[name] = target;
  }
  return aliases;
}

namespace {

fs::path resolve(const std::string& model, std::set<std::string>& seen) {
  if (model.empty()) {
    throw UserError(
        "the model's name is empty: want a GGUF file, a directory, or a name as org/name");
  }
  std::error_code ec;
  if (fs::exists(model, ec)) {
    return model;
  }
  const auto aliases = model_aliases();
  if (const auto alias = aliases.find(model); alias != aliases.end()) {
    if (!seen.insert(model).second) {
      throw UserError("{}: the alias leads back to itself", model);
    }
    return resolve(alias->second, seen);
  }
  const auto repo = parse_repo_name(model);
  if (!repo) {
    throw UserError(
        "{}: no such file or directory, and neither an alias nor a repository name as org/name",
        model);
  }
  const fs::path cache = hub_cache_folder();
  const auto snapshot = find_snapshot(cache, repo->id);
  if (!snapshot) {
    throw UserError(
        "{}: no such file or directory, and not in the hub cache {}; fetch it with: quince pull {}",
        model,
        cache.string(),
        model);
  }
  const std::vector<std::string> files = list_files(*snapshot);
  if (!repo->quant.empty() || prefers_gguf(files)) {
    return *snapshot / choose_gguf(files, repo->quant, repo->id);
  }
  return *snapshot;
}

}  // namespace

fs::path resolve_model(const std::string& model) {
  std::set<std::string> seen;
  return resolve(model, seen);
}

}  // namespace quince
