// A file on its way into the hub cache: <blob>.incomplete always holds a beginning of the content,
// so it can be continued by any tool that knows the cache. The checksum runs along.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace quince {

// What the hub says of a file. Large files have a SHA-256, small ones Git's blob id:
// SHA-1("blob <size>\0" + content). etag names the blob in the cache.
struct HubFile {
  std::string path;  // in the repository
  uint64_t size = 0;
  std::string etag;
  std::string sha256;    // lower-case hex or ""
  std::string git_sha1;  // lower-case hex or ""
};

class PartialFile {
 public:
  // Opens (or makes) blob + ".incomplete" and reads what is there. Throws UserError.
  PartialFile(std::filesystem::path blob, HubFile file);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  uint64_t written() const {
    return written_;
  }
  const HubFile& file() const {
    return file_;
  }
  void append(std::span<const std::byte> bytes);  // UserError when the disk is full
  void restart();                                 // back to nothing
  // Checks size and checksum and gives the file its name. On a mismatch the incomplete file is
  // removed and a UserError thrown.
  void finish();

 private:
  struct Hash;
  std::filesystem::path blob_;
  std::filesystem::path partial_;
  HubFile file_;
  int fd_ = -1;
  uint64_t written_ = 0;
  std::unique_ptr<Hash> hash_;
};

}  // namespace quince
