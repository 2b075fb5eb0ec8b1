#include "weights/partial_file.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace quince {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const fs::path& path, std::string_view what) {
  const int error = errno;
  throw UserError(
      "{}: cannot {}: {}{}",
      path.string(),
      what,
      std::strerror(error),
      error == ENOSPC ? " (free some space and pull again: it goes on where it stopped)" : "");
}

}  // namespace

// SHA-256, Git's blob hash, or nothing when the hub tells neither.
struct PartialFile::Hash {
  explicit Hash(const HubFile& file)
      : want(!file.sha256.empty() ? file.sha256 : file.git_sha1),
        type(!file.sha256.empty() ? EVP_sha256() : EVP_sha1()),
        prefix(file.sha256.empty() ? "blob " + std::to_string(file.size) + '\0' : "") {
    reset();
  }
  ~Hash() {
    EVP_MD_CTX_free(context);
  }
  void reset() {
    EVP_DigestInit_ex(context, type, nullptr);
    EVP_DigestUpdate(context, prefix.data(), prefix.size());
  }
  void update(std::span<const std::byte> bytes) {
    if (!want.empty()) {
      EVP_DigestUpdate(context, bytes.data(), bytes.size());
    }
  }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context, digest, &size);
    std::string text;
    for (unsigned int i = 0; i < size; ++i) {
      text += fmt::format("{:02x}", digest[i]);
    }
    return text;
  }

  std::string want;
  const EVP_MD* type;
  std::string prefix;
  EVP_MD_CTX* context = EVP_MD_CTX_new();
};

PartialFile::PartialFile(fs::path blob, HubFile file)
    : blob_(std::move(blob)),
      partial_(blob_.string() + ".incomplete"),
      file_(std::move(file)),
      hash_(std::make_unique<Hash>(file_)) {
  fd_ = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    fail(partial_, "create it");
  }
  std::vector<std::byte> buffer(1 << 20);
  while (written_ <= file_.size) {
    const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      break;
    }
    hash_->update(std::span(buffer).first(static_cast<size_t>(n)));
    written_ += static_cast<uint64_t>(n);
  }
  if (written_ > file_.size) {
    restart();
  }
}

PartialFile::~PartialFile() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void PartialFile::append(std::span<const std::byte> bytes) {
  hash_->update(bytes);
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(written_));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      fail(partial_, "write");
    }
    written_ += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void PartialFile::restart() {
  if (::ftruncate(fd_, 0) != 0) {
    fail(partial_, "empty it");
  }
  written_ = 0;
  hash_->reset();
}

void PartialFile::finish() {
  const std::string got = hash_->hex();
  const bool size_differs = written_ != file_.size;
  if (size_differs || (!hash_->want.empty() && got != hash_->want)) {
    ::unlink(partial_.c_str());
    if (size_differs) {
      throw UserError("{}: got {} bytes, want {}", file_.path, written_, file_.size);
    }
    throw UserError(
        "{}: the checksum is wrong: got {}, want {}; the bytes were thrown away, pull again",
        file_.path,
        got,
        hash_->want);
  }
  if (::fsync(fd_) != 0) {
    fail(partial_, "write");
  }
  if (::rename(partial_.c_str(), blob_.c_str()) != 0) {
    fail(blob_, "give the finished file this name");
  }
  ::close(fd_);
  fd_ = -1;
}

}  // namespace quince
