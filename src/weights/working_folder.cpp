#include "weights/working_folder.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_io.h"

namespace quince {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kUnique = "XXXXXX";

std::string name_before_unique(const fs::path& target) {
  return "." + target.filename().string() + ".tmp-";
}

int open_folder(const fs::path& folder) {
  return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

}  // namespace

WorkingFolder::WorkingFolder(const fs::path& target)
    : target_(target), parent_(target.has_parent_path() ? target.parent_path() : fs::path(".")) {
  std::error_code ignored;
  fs::create_directories(parent_, ignored);  // else mkdtemp says why not
  remove_leftovers();
  while (!make()) {
  }
}

WorkingFolder::~WorkingFolder() {
  if (!settled_) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  if (lock_ >= 0) {
    ::close(lock_);
  }
}

bool WorkingFolder::make() {
  std::string pattern = (parent_ / (name_before_unique(target_) + std::string(kUnique))).string();
  if (!::mkdtemp(pattern.data())) {
    const int error = errno;
    throw UserError("{}: cannot make a folder in it: {}", parent_.string(), std::strerror(error));
  }
  ::chmod(pattern.c_str(), 0755);
  path_ = pattern;
  const int fd = open_folder(path_);
  // Where folders cannot be locked nobody can take ours for a leftover either.
  if (fd < 0 || (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)) {
    ::close(fd);
    return false;
  }
  std::error_code ignored;
  if (!fs::exists(path_, ignored)) {
    ::close(fd);
    return false;
  }
  lock_ = fd;
  return true;
}

void WorkingFolder::remove_leftovers() const {
  const std::string begin = name_before_unique(target_);
  std::vector<fs::path> found;
  std::error_code ec;
  for (auto at = fs::directory_iterator(parent_, ec); !ec && at != fs::directory_iterator();
       at.increment(ec)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(begin) && name.size() == begin.size() + kUnique.size()) {
      found.push_back(at->path());
    }
  }
  for (const fs::path& folder : found) {
    const int fd = open_folder(folder);
    if (fd < 0) {
      continue;
    }
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      fs::remove_all(folder, ec);
    }
    ::close(fd);
  }
}

void WorkingFolder::settle() {
  sync_folder(path_);
  if (::rename(path_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    throw UserError(
        "{}: cannot give the finished folder this name: {}",
        target_.string(),
        std::strerror(error));
  }
  settled_ = true;
  sync_folder(parent_);
}

}  // namespace quince
