#include "cache/page_folder.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <tuple>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_io.h"
#include "base/mapped_file.h"
#include "weights/digest.h"

namespace quince {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kSegment = ".safetensors";
constexpr std::string_view kUnfinished = ".part";
constexpr std::string_view kLock = "lock";

std::string own_name(const PageKind& kind) {
  Sha256 sha;
  sha.add_text(kind.model);
  sha.add_text(kind.format);
  const auto digest = sha.finish();
  return hex(std::span(digest).first(12));
}

// Names that nobody else has: of the time, the process and a count. The time also keeps them in
// order for people.
std::string new_name() {
  static std::atomic<uint64_t> count = 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format(
      "pages-{:013x}-{:x}-{:x}",
      std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
      ::getpid(),
      ++count);
}

Descriptor locked(const fs::path& folder) {
  Descriptor fd(::open((folder / kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  while (fd && ::flock(fd.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return fd;
}

[[noreturn]] void fail(const fs::path& path, std::string_view what) {
  const int error = errno;
  throw UserError("{}: cannot {}: {}", path.string(), what, std::strerror(error));
}

// A file that its writer, dead or alive, has not finished.
bool abandoned(const fs::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
}

int64_t used_time(const struct stat& info) {
#ifdef __APPLE__
  const timespec& time = info.st_mtimespec;
#else
  const timespec& time = info.st_mtim;
#endif
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// The head comes last: it has the sums. Until then nobody takes the file for a segment.
void write_pages(
    int fd,
    const fs::path& path,
    PageSegment& segment,
    const std::function<void(size_t, std::span<std::byte>)>& fill) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < segment.pages.size(); ++i) {
    StoredPage& page = segment.pages[i];
    bytes.resize(page.bytes);
    fill(i, bytes);
    page.sum = page_checksum(bytes);
    if (!write_at(fd, page.offset, bytes)) {
      fail(path, "write it");
    }
  }
  const std::string head = segment_head(segment);
  if (!write_at(fd, 0, std::as_bytes(std::span(head))) || ::fsync(fd) != 0) {
    fail(path, "write it");
  }
}

template <typename F>
void each_entry(const fs::path& folder, const F& f) {
  std::error_code ec;
  for (auto at = fs::directory_iterator(folder, ec); !ec && at != fs::directory_iterator();
       at.increment(ec)) {
    f(at->path());
  }
}

}  // namespace

std::vector<FolderFile> files_to_remove(
    std::vector<FolderFile> files, uint64_t wanted, uint64_t cap) {
  uint64_t total = 0;
  for (const FolderFile& file : files) {
    total += file.bytes;
  }
  std::sort(files.begin(), files.end(), [](const FolderFile& a, const FolderFile& b) {
    return std::tie(a.used, a.path) < std::tie(b.used, b.path);
  });
  size_t count = 0;
  while (count < files.size() && total + wanted > cap) {
    total -= files[count++].bytes;
  }
  files.resize(count);
  return files;
}

PageFolder::PageFolder(fs::path folder, PageKind kind, uint64_t cap)
    : folder_(std::move(folder)), kind_(std::move(kind)), cap_(cap) {
  own_ = folder_ / own_name(kind_);
  std::error_code ec;
  fs::create_directories(own_, ec);
  if (ec) {
    throw UserError("{}: cannot make this folder for pages: {}", own_.string(), ec.message());
  }
  const Descriptor lock = locked(folder_);
  if (!lock) {
    fail(folder_ / kLock, "open it");
  }
  // The cap may be smaller than last time.
  for (const FolderFile& file : files_to_remove(all_files(true), 0, cap_)) {
    ::unlink(file.path.c_str());
  }
}

// clean: removes what nobody will finish; under the lock only.
std::vector<FolderFile> PageFolder::all_files(bool clean) const {
  std::vector<FolderFile> files;
  each_entry(folder_, [&](const fs::path& kind) {
    each_entry(kind, [&](const fs::path& path) {
      const std::string extension = path.extension().string();
      const bool unfinished = extension == kUnfinished;
      struct stat info{};
      if ((!unfinished && extension != kSegment) || ::lstat(path.c_str(), &info) != 0 ||
          !S_ISREG(info.st_mode)) {
        return;
      }
      if (clean && unfinished && abandoned(path)) {
        ::unlink(path.c_str());
        return;
      }
      // What is being written may not be removed: it counts as used later than all.
      files.push_back(
          {path,
           static_cast<uint64_t>(info.st_size),
           unfinished ? std::numeric_limits<int64_t>::max() : used_time(info)});
    });
  });
  return files;
}

uint64_t PageFolder::bytes() const {
  uint64_t total = 0;
  for (const FolderFile& file : all_files(false)) {
    total += file.bytes;
  }
  return total;
}

std::vector<PageFolder::Found> PageFolder::scan(
    const std::function<void(const std::string&)>& complain) const {
  std::vector<Found> found;
  each_entry(own_, [&](const fs::path& path) {
    if (path.extension() != kSegment) {
      return;
    }
    try {
      const auto file = MappedFile::open(path);
      PageSegment segment = parse_segment(file->bytes(), path.string());
      if (segment.kind != kind_) {
        throw UserError(
            "{}: pages of model {} as {}, want {} as {}",
            path.string(),
            segment.kind.model,
            segment.kind.format,
            kind_.model,
            kind_.format);
      }
      found.push_back({path.filename().string(), std::move(segment)});
    } catch (const UserError& error) {
      complain(fmt::format("{} (not used)", error.what()));
    }
  });
  return found;
}

PageFolder::Written PageFolder::write(
    PageSegment& segment, const std::function<void(size_t, std::span<std::byte>)>& fill) const {
  segment.kind = kind_;
  uint64_t size = segment_head(segment).size();  // sums take the same room whatever they are
  for (const StoredPage& page : segment.pages) {
    size += page.bytes;
  }
  Written written;
  const std::string name = new_name();
  const fs::path unfinished = own_ / (name + std::string(kUnfinished));
  Descriptor fd;
  {
    const Descriptor lock = locked(folder_);
    if (!lock) {
      fail(folder_ / kLock, "open it");
    }
    std::vector<FolderFile> files = all_files(true);
    if (size > cap_) {
      throw UserError(
          "{}: {} bytes of pages do not fit into the {} that it may hold: raise its size",
          folder_.string(),
          size,
          cap_);
    }
    for (const FolderFile& file : files_to_remove(std::move(files), size, cap_)) {
      if (file.used == std::numeric_limits<int64_t>::max()) {
        throw UserError("{}: others are writing all that it may hold", folder_.string());
      }
      ::unlink(file.path.c_str());
      if (file.path.parent_path() == own_) {
        written.removed.push_back(file.path.filename().string());
      }
    }
    fd = Descriptor(::open(unfinished.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    // The file has its size at once, so that others count it.
    if (!fd || ::flock(fd.get(), LOCK_EX) != 0 ||
        ::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
      fail(unfinished, "write it");
    }
  }
  try {
    write_pages(fd.get(), unfinished, segment, fill);
  } catch (...) {
    ::unlink(unfinished.c_str());
    throw;
  }
  written.file = name + std::string(kSegment);
  if (::rename(unfinished.c_str(), (own_ / written.file).c_str()) != 0) {
    fail(unfinished, "give it its name");
  }
  sync_folder(own_);
  return written;
}

bool PageFolder::read(
    const std::string& file, const StoredPage& page, std::span<std::byte> bytes) const {
  const fs::path path = own_ / file;
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) {
    return false;
  }
  if (!read_at(fd.get(), page.offset, bytes)) {
    throw UserError("{}: ends before its pages do", path.string());
  }
  if (page_checksum(bytes) != page.sum) {
    throw UserError("{}: the {} bytes at {} are damaged", path.string(), page.bytes, page.offset);
  }
  ::futimens(fd.get(), nullptr);
  return true;
}

void PageFolder::remove(const std::string& file) const {
  ::unlink((own_ / file).c_str());
}

}  // namespace quince
