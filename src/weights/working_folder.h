// A hidden folder beside the place where a finished folder shall appear: what is in it counts for
// nothing until it gets that name. It is locked while it lives, so that one whose program was
// killed is known from one in use, and the next that is made for the same place removes it.
#pragma once

#include <filesystem>

namespace quince {

class WorkingFolder {
 public:
  // Throws UserError when it cannot be made.
  explicit WorkingFolder(const std::filesystem::path& target);
  ~WorkingFolder();  // removes it and what is in it, unless it was settled
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

  const std::filesystem::path& path() const {
    return path_;
  }

  // Renames it to target, flushed to disk. Throws UserError.
  void settle();

 private:
  void remove_leftovers() const;
  bool make();  // false: somebody took it for a leftover, before it was locked

  std::filesystem::path target_;
  std::filesystem::path parent_;
  std::filesystem::path path_;
  int lock_ = -1;
  bool settled_ = false;
};

}  // namespace quince
