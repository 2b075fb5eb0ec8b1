// The folder of a disk tier: a folder for each kind of pages, and in it segments (page_segment.h).
// Any number of models and processes share it and its size: whoever writes makes room first, under
// a lock that is held for as long as that takes, by removing the segments that were used longest
// ago, whose they be. A segment is written under another name, flushed and renamed, so it is whole
// or not there; what a killed process has left behind is known by its lock being free, and removed.
// No MLX. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cache/page_segment.h"

namespace quince {

// Of all files together. Which of them go so that `wanted` more bytes fit: least recently used
// first. Nothing fits that is larger than the cap.
struct FolderFile {
  std::filesystem::path path;
  uint64_t bytes = 0;
  int64_t used = 0;  // nanoseconds of the file system's clock
};
std::vector<FolderFile> files_to_remove(
    std::vector<FolderFile> files, uint64_t wanted, uint64_t cap);

class PageFolder {
 public:
  // Makes the folder and that of the kind. Throws UserError.
  PageFolder(std::filesystem::path folder, PageKind kind, uint64_t cap);

  // Reads the heads of all segments of the kind, and says what is wrong with those that are none,
  // which are left alone.
  struct Found {
    std::string file;  // its name
    PageSegment segment;
  };
  std::vector<Found> scan(const std::function<void(const std::string&)>& complain) const;

  // Writes a segment of these pages; fill puts a page's bytes, its checksum is set then. Returns
  // its name, with what was removed to make room. Throws UserError: it does not fit, the disk is
  // full.
  struct Written {
    std::string file;
    std::vector<std::string> removed;  // of this kind
  };
  Written write(
      PageSegment& segment,
      const std::function<void(size_t page, std::span<std::byte>)>& fill) const;

  // Bytes of a page; false when the file is not there any more. Throws UserError when they are not
  // those that were written. The file counts as used.
  bool read(const std::string& file, const StoredPage& page, std::span<std::byte> bytes) const;
  void remove(const std::string& file) const;

  uint64_t bytes() const;  // of all files, of all kinds
  uint64_t cap() const {
    return cap_;
  }
  const std::filesystem::path& path() const {
    return own_;
  }

 private:
  std::vector<FolderFile> all_files(bool clean) const;

  std::filesystem::path folder_;
  std::filesystem::path own_;  // of the kind
  PageKind kind_;
  uint64_t cap_;
};

}  // namespace quince
