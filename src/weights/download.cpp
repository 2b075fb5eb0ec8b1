#include "weights/download.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "weights/gguf.h"
#include "weights/hub.h"
#include "weights/model_names.h"
#include "weights/segmented_fetch.h"

namespace quince {

namespace fs = std::filesystem;

namespace {

bool is_root_file(const std::string& name) {
  return name.find('/') == std::string::npos;
}

bool is_safetensors(const std::string& name) {
  return name.ends_with(".safetensors") && is_root_file(name);
}

// Texts that come with safetensors: configuration, tokenizer, templates.
bool is_side_file(const std::string& name, bool has_tokenizer_json) {
  if (name.starts_with("additional_chat_templates/")) {
    return name.ends_with(".jinja");
  }
  if (!is_root_file(name)) {
    return false;
  }
  return name.ends_with(".json") || name.ends_with(".jinja") ||
         (name == "tokenizer.model" && !has_tokenizer_json);
}

// All parts of the split set that `first` begins, or just it.
std::vector<std::string> gguf_parts(
    const std::vector<std::string>& names, const std::string& first, std::string_view repo) {
  const size_t slash = first.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : first.substr(0, slash + 1);
  const auto part = gguf_part_name(first.substr(folder.size()));
  if (!part) {
    return {first};
  }
  std::vector<std::string> parts;
  for (int i = 1; i <= part->count; ++i) {
    parts.push_back(fmt::format("{}{}-{:05}-of-{:05}.gguf", folder, part->stem, i, part->count));
    if (std::find(names.begin(), names.end(), parts.back()) == names.end()) {
      throw UserError("{}: the repository lacks the part {}", repo, parts.back());
    }
  }
  return parts;
}

void make_folder(const fs::path& folder) {
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) {
    throw UserError("{}: cannot create it: {}", folder.string(), ec.message());
  }
}

// The lock that every tool using the cache takes while it fetches a blob.
class BlobLock {
 public:
  explicit BlobLock(const fs::path& path) {
    make_folder(path.parent_path());
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) {
      throw UserError("{}: cannot create it: {}", path.string(), std::strerror(errno));
    }
  }
  ~BlobLock() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  BlobLock(BlobLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  BlobLock& operator=(BlobLock&&) = delete;

  bool try_lock() {
    return ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno == ENOTSUP || errno == ENOLCK;
  }

 private:
  int fd_ = -1;
};

// One pull.
class Pull {
 public:
  Pull(const PullOptions& options, RepoName repo)
      : options_(options),
        hub_(options.hub),
        repo_(std::move(repo)),
        cache_(options.cache.empty() ? hub_cache_folder() : options.cache),
        folder_(repo_folder(cache_, repo_.id)) {
    hub_.check = [this] {
      if (options_.progress) {
        options_.progress({0, 0, "asking the hub"});
      }
    };
  }

  PullResult run() {
    choose_files();
    make_folder(folder_ / "blobs");
    take_locks();
    fetch();
    link_snapshot();
    return finish();
  }

 private:
  fs::path blob(const HubFile& file) const {
    return folder_ / "blobs" / file.etag;
  }
  fs::path snapshot() const {
    return folder_ / "snapshots" / listing_.commit;
  }

  bool is_there(const HubFile& file) const {
    std::error_code ec;
    return fs::is_regular_file(blob(file), ec) && fs::file_size(blob(file), ec) == file.size;
  }

  void choose_files() {
    listing_ = list_repo(http_, hub_, repo_.id, options_.revision);
    std::vector<std::string> names;
    for (const HubFile& file : listing_.files) {
      names.push_back(file.path);
    }
    const std::vector<std::string> wanted = needed_files(names, repo_.quant, repo_.id);
    for (const std::string& name : wanted) {
      HubFile file = listing_.files[static_cast<size_t>(
          std::find(names.begin(), names.end(), name) - names.begin())];
      complete(http_, hub_, repo_.id, listing_.commit, file);
      result_.bytes += file.size;
      files_.push_back(std::move(file));
    }
    result_.commit = listing_.commit;
    result_.files = wanted;
  }

  // In one order for all, so that two pulls cannot wait for each other.
  void take_locks() {
    std::set<std::string> etags;
    for (const HubFile& file : files_) {
      etags.insert(file.etag);
    }
    for (const std::string& etag : etags) {
      BlobLock lock(cache_ / ".locks" / folder_.filename() / (etag + ".lock"));
      while (!lock.try_lock()) {
        report(0, "waiting for another download of this model");
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
      }
      locks_.push_back(std::move(lock));
    }
  }

  void report(uint64_t done, const std::string& file) {
    if (options_.progress) {
      options_.progress({done, result_.bytes, file});
    }
  }

  void check_space(uint64_t needed) const {
    struct statvfs disk{};
    if (::statvfs(folder_.c_str(), &disk) != 0) {
      return;
    }
    const uint64_t available = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
    if (available < needed) {
      throw UserError(
          "{}: {} more bytes are needed, the disk has {} left: free some space, or choose another "
          "place with HF_HUB_CACHE",
          folder_.string(),
          needed,
          available);
    }
  }

  void fetch() {
    std::vector<FetchJob> jobs;
    std::set<std::string> etags;
    uint64_t there = 0;
    uint64_t missing = 0;
    for (const HubFile& file : files_) {
      if (is_there(file) || !etags.insert(file.etag).second) {
        there += file.size;
        continue;
      }
      FetchJob job;
      job.partial = std::make_unique<PartialFile>(blob(file), file);
      job.url = resolve_url(hub_, repo_.id, listing_.commit, file.path);
      missing += file.size - job.partial->written();
      jobs.push_back(std::move(job));
    }
    check_space(missing);
    FetchOptions fetch;
    fetch.connections = std::max(1, options_.connections);
    fetch.segment_bytes = std::max<uint64_t>(1, options_.segment_bytes);
    fetch.attempts = std::max(1, options_.attempts);
    fetch.retry_delay = options_.retry_delay;
    fetch.token = hub_.token;
    fetch.refuse = [&](const HttpResult& result, const std::string& path) {
      throw_hub_error(result, hub_, repo_.id, path);
    };
    fetch.progress = [&](uint64_t received, const std::string& path) {
      report(there + received, path);
    };
    fetch_all(http_, std::move(jobs), fetch);
    result_.downloaded = missing;
  }

  void link_snapshot() {
    for (const HubFile& file : files_) {
      const fs::path link = snapshot() / file.path;
      make_folder(link.parent_path());
      const fs::path target = blob(file).lexically_relative(link.parent_path());
      std::error_code ec;
      if (fs::read_symlink(link, ec) == target) {
        continue;
      }
      const fs::path temporary = link.string() + ".tmp-link";
      fs::remove(temporary, ec);
      fs::create_symlink(target, temporary, ec);
      if (ec) {
        // A file system without links: the file itself moves to its place.
        fs::copy_file(blob(file), temporary, fs::copy_options::overwrite_existing, ec);
      }
      if (!ec) {
        fs::rename(temporary, link, ec);
      }
      if (ec) {
        throw UserError("{}: cannot create it: {}", link.string(), ec.message());
      }
    }
  }

  PullResult finish() {
    if (options_.revision != listing_.commit) {
      const fs::path ref = folder_ / "refs" / options_.revision;
      make_folder(ref.parent_path());
      const fs::path temporary = ref.string() + ".tmp";
      const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
      const auto size = static_cast<ssize_t>(listing_.commit.size());
      const bool written =
          fd >= 0 && ::write(fd, listing_.commit.data(), listing_.commit.size()) == size;
      if (fd >= 0) {
        ::close(fd);
      }
      if (!written || ::rename(temporary.c_str(), ref.c_str()) != 0) {
        throw UserError("{}: cannot write: {}", ref.string(), std::strerror(errno));
      }
    }
    const bool gguf = result_.files.front().ends_with(".gguf");
    result_.path = gguf ? snapshot() / result_.files.front() : snapshot();
    return std::move(result_);
  }

  const PullOptions& options_;
  HubAccess hub_;
  RepoName repo_;
  fs::path cache_;
  fs::path folder_;
  HttpClient http_;
  RepoListing listing_;
  std::vector<HubFile> files_;
  std::vector<BlobLock> locks_;
  PullResult result_;
};

void check_revision(const std::string& revision) {
  const bool sound = !revision.empty() && revision.size() <= 200 && revision.front() != '/' &&
                     revision.back() != '/' && revision.find("..") == std::string::npos &&
                     revision.find("//") == std::string::npos &&
                     std::all_of(revision.begin(), revision.end(), [](unsigned char c) {
                       return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/';
                     });
  if (!sound) {
    throw UserError("revision {}: want a branch, a tag or a commit id", revision);
  }
}

}  // namespace

std::vector<std::string> needed_files(
    const std::vector<std::string>& names, std::string_view quant, std::string_view repo) {
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const bool any_safetensors = std::any_of(names.begin(), names.end(), is_safetensors);
  if (!quant.empty() || prefers_gguf(names)) {
    return gguf_parts(names, choose_gguf(names, quant, repo), repo);
  }
  if (!any_safetensors || !has("config.json")) {
    throw UserError(
        "{}: has neither a GGUF file nor config.json with safetensors; it has {}",
        repo,
        fmt::join(names.begin(), names.begin() + std::min<size_t>(names.size(), 12), ", "));
  }
  // As weights/safetensors.h reads a directory: one file, or shards with their index, or all.
  const bool single = has("model.safetensors");
  const bool model_files = std::any_of(names.begin(), names.end(), [](const auto& name) {
    return is_safetensors(name) && name.starts_with("model");
  });
  std::vector<std::string> wanted;
  for (const std::string& name : names) {
    const bool weights =
        is_safetensors(name) &&
        (single ? name == "model.safetensors" : !model_files || name.starts_with("model"));
    if (weights || is_side_file(name, has("tokenizer.json"))) {
      wanted.push_back(name);
    }
  }
  // Texts first: they are small, and a refused token shows at once.
  std::stable_partition(wanted.begin(), wanted.end(), [](const auto& name) {
    return !name.ends_with(".safetensors");
  });
  return wanted;
}

PullResult pull_model(const PullOptions& options) {
  check_revision(options.revision);
  std::string name = options.model;
  auto repo = parse_repo_name(name);
  if (!repo) {
    const auto aliases = model_aliases();
    if (const auto alias = aliases.find(name); alias != aliases.end()) {
      name = alias->second;
      repo = parse_repo_name(name);
    }
  }
  if (!repo) {
    throw UserError(
        "{}: want a repository as org/name, with :QUANT for one GGUF file of it (org/name:Q4_K_M)",
        name);
  }
  return Pull(options, *repo).run();
}

}  // namespace quince
