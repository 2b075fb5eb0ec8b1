#include "weights/hub.h"

#include <algorithm>
#include <cctype>

#include <fmt/ranges.h>

#include "base/environment.h"
#include "base/error.h"
#include "weights/gguf.h"
#include "weights/json_file.h"

namespace quince {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxSmallFile = 1 << 20;
constexpr int kDeepestFolder = 2;                   // that list_files looks into
constexpr std::string_view kUsualQuant = "Q4_K_M";  // the usual compromise of size and quality
constexpr std::string_view kHubPrefixes[] = {
    "https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/", "hf://"};

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
  // As other programs write it, and as a browser's address bar has it.
  for (const std::string_view prefix : kHubPrefixes) {
    if (text.starts_with(prefix)) {
      text.remove_prefix(prefix.size());
      break;
    }
  }
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
    if (at.depth() >= kDeepestFolder) {
      at.disable_recursion_pending();
    }
    if (at->is_regular_file(ignored)) {
      names.push_back(at->path().lexically_relative(folder).generic_string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> gguf_models(const std::vector<std::string>& names) {
  std::vector<std::string> models;
  for (const std::string& name : names) {
    const auto part = gguf_part_name(name);
    if (name.ends_with(".gguf") && lower(name).find("mmproj") == std::string::npos &&
        (!part || part->part == 1)) {
      models.push_back(name);
    }
  }
  return models;
}

std::string choose_gguf(
    const std::vector<std::string>& names, std::string_view quant, std::string_view repo_id) {
  const std::vector<std::string> models = gguf_models(names);
  if (models.empty()) {
    throw UserError("{}: holds no GGUF model", repo_id);
  }
  if (quant.empty() && models.size() == 1) {
    return models.front();
  }
  const std::string want = lower(quant.empty() ? kUsualQuant : quant);
  std::vector<std::string> chosen = models;
  std::erase_if(chosen, [&](const std::string& name) {
    return lower(name) != want && !has_word(lower(name), want);
  });
  if (chosen.size() == 1) {
    return chosen.front();
  }
  if (quant.empty()) {
    throw UserError(
        "{}: has {} GGUF models, and {} of them {} {}, which is taken when nothing is said; name "
        "one as {}:QUANT: {}",
        repo_id,
        models.size(),
        chosen.empty() ? "none" : fmt::format("{}", chosen.size()),
        chosen.empty() ? "is" : "are",
        kUsualQuant,
        repo_id,
        fmt::join(models, ", "));
  }
  if (chosen.empty()) {
    throw UserError(
        "{}: no GGUF file there is {}; it has {}", repo_id, quant, fmt::join(models, ", "));
  }
  throw UserError(
      "{}: {} GGUF files fit {}: {}; name one as {}:FILE",
      repo_id,
      chosen.size(),
      quant,
      fmt::join(chosen, ", "),
      repo_id);
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

}  // namespace quince
