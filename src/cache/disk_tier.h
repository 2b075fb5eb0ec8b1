// Pages beyond what memory may hold, on the disk, where they outlive the program. The engine hands
// over what it gives up, asks what a prompt would find, and has pages read; two threads of ours do
// the work with files, so that nobody waits for a disk who does not need what is on it. Members are
// for the engine thread, but for what is said of stats().
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cache/disk_index.h"
#include "cache/page_codec.h"
#include "cache/page_folder.h"

namespace quince {

struct DiskTierOptions {
  std::filesystem::path folder;  // shared with other models and processes
  uint64_t bytes = 0;            // that all files in it may have together
  std::string model;             // identity
  CacheReach reach;
  std::shared_ptr<const PageCodec> codec;
  std::function<void(const std::string&)> log = [](const std::string&) {};  // any thread
  std::function<void()> arrived = [] {};  // reader's thread: take_fetched() has something
};

struct DiskStats {
  int64_t pages = 0;  // that can be read
  int64_t written = 0;
  int64_t dropped = 0;  // given up because the disk was behind
  int64_t read = 0;
};

class DiskTier {
 public:
  explicit DiskTier(DiskTierOptions options);  // throws UserError; reads the segments' heads
  ~DiskTier();                                 // when what was handed over has been written
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // On the disk, or on its way there.
  bool has(const PageChain& name, uint64_t pieces) const;
  // Takes a page over. Drops it when too many wait already; or waits until they do not.
  void keep(PageLabel label, PageImage image, bool wait = false);
  void settle();  // what was handed over has been written, or could not be

  // See DiskIndex.
  DiskMatch match(
      uint64_t root,
      std::span<const int32_t> tokens,
      const std::vector<bool>& in_memory,
      int64_t found) const;

  struct FetchedPage {
    int64_t place = 0;
    std::vector<int32_t> tokens;
    bool whole = false;
    std::shared_ptr<CachePart> part;
  };
  struct Fetched {
    uint64_t ticket = 0;
    std::vector<FetchedPage> pages;  // up to the first that could not be read
  };
  void read(uint64_t ticket, std::vector<DiskPage> pages);
  std::vector<Fetched> take_fetched();

  DiskStats stats() const;  // any thread

 private:
  struct Waiting {
    PageLabel label;
    PageImage image;
  };
  struct Wanted {
    uint64_t ticket = 0;
    std::vector<DiskPage> pages;
  };
  bool knows(const PageChain& name, uint64_t pieces) const;
  void write_loop();
  void read_loop();
  void write_segment(std::vector<Waiting> batch);
  Fetched fetch(const Wanted& wanted);
  void lost(const std::string& file);

  DiskTierOptions options_;
  PageFolder folder_;
  size_t segment_bytes_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  DiskIndex index_;
  std::deque<Waiting> waiting_;
  std::unordered_map<PageChain, uint64_t> waiting_pieces_;  // with those being written
  size_t waiting_bytes_ = 0;                                // with those being written
  bool hurry_ = false;                                      // small segments too
  std::deque<Wanted> wanted_;
  std::vector<Fetched> fetched_;
  DiskStats stats_;
  bool closed_ = false;

  bool complained_ = false;  // writer's thread
  std::thread writer_;
  std::thread reader_;
};

}  // namespace quince
