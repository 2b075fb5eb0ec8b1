#include "base/mapped_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace quince {

namespace {

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) {
      ::close(fd);
    }
  }
};

// madvise wants page borders: shrinks the range to the whole pages inside it (drop) or grows it to
// all pages it touches (will_need).
void advise(std::span<const std::byte> range, int advice, bool inside_only) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<uintptr_t>(range.data());
  auto end = begin + range.size();
  begin = inside_only ? (begin + page - 1) / page * page : begin / page * page;
  end = inside_only ? end / page * page : (end + page - 1) / page * page;
  if (begin < end) {
    ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
  }
}

// Throws UserError unless it is a regular file; returns its size.
size_t open_file(const std::filesystem::path& path, FileDescriptor& file) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) {
    throw UserError("{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) {
    throw UserError("{}: cannot read its size: {}", path.string(), std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    throw UserError("{}: not a regular file", path.string());
  }
  return static_cast<size_t>(info.st_size);
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  FileDescriptor file{-1};
  const size_t size = open_file(path, file);
  if (size == 0) {
    return std::shared_ptr<const MappedFile>(new MappedFile(path, nullptr, 0, false));
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) {
    throw UserError("{}: cannot map {} bytes: {}", path.string(), size, std::strerror(errno));
  }
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const std::byte*>(data), size, false));
}

std::shared_ptr<const MappedFile> MappedFile::read(const std::filesystem::path& path) {
  FileDescriptor file{-1};
  const size_t size = open_file(path, file);
  if (size == 0) {
    return std::shared_ptr<const MappedFile>(new MappedFile(path, nullptr, 0, true));
  }
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
  if (data == MAP_FAILED) {
    throw UserError("{}: there is no memory for its {} bytes", path.string(), size);
  }
  const std::shared_ptr<const MappedFile> result(
      new MappedFile(path, static_cast<const std::byte*>(data), size, true));
  constexpr size_t kAtOnce = size_t{1} << 30;
  for (size_t at = 0; at < size;) {
    const ssize_t count = ::pread(
        file.fd,
        static_cast<char*>(data) + at,
        std::min(kAtOnce, size - at),
        static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      throw UserError(
          "{}: cannot read it: {}",
          path.string(),
          count < 0 ? std::strerror(errno) : "it has become shorter");
    }
    at += static_cast<size_t>(count);
  }
  return result;
}

MappedFile::MappedFile(std::filesystem::path path, const std::byte* data, size_t size, bool copied)
    : path_(std::move(path)), data_(data), size_(size), copied_(copied) {}

MappedFile::~MappedFile() {
  if (data_) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

void MappedFile::will_need(std::span<const std::byte> range) const {
  if (!copied_) {
    advise(range, MADV_WILLNEED, false);
  }
}

void MappedFile::drop(std::span<const std::byte> range) const {
  if (!copied_) {
    advise(range, MADV_DONTNEED, true);
  }
}

}  // namespace quince
