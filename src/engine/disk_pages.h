// The engine's side of the disk tier: pages that are given up go there once the steps that compute
// them have run, and prompts are looked up there when they begin. Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cache/disk_tier.h"
#include "engine/engine.h"
#include "engine/scheduler.h"

namespace quince {

using PageParts = std::unordered_map<PageId, std::shared_ptr<CachePart>>;

class DiskPages {
 public:
  // woken: any thread; something has been read. Throws UserError when the folder cannot be used, or
  // the model's pages cannot be written.
  DiskPages(
      const EngineOptions& options,
      const ModelInfo& info,
      const Cache& cache,
      std::function<void()> woken);

  // See SchedulerOptions::elsewhere.
  bool ask(const Beginning& beginning);
  std::vector<DiskTier::Fetched> take_fetched() {
    return tier_.take_fetched();
  }

  // behind: the last step under way, which may be computing what is in them.
  void take_over(
      std::vector<GivenUpPage> pages, const PageParts& parts, std::optional<uint64_t> behind);
  void step_done(uint64_t step);
  void step_failed();  // what waits for a step may be no good
  // Returns when all of these are on the disk, as far as they fit.
  void write_all(std::vector<GivenUpPage> pages, const PageParts& parts);

  DiskStats stats() const {
    return tier_.stats();
  }

 private:
  struct Pending {
    uint64_t step = 0;
    PageLabel label;
    std::shared_ptr<CachePart> part;
  };
  void hand_over(PageLabel label, CachePart& part, bool wait);

  std::shared_ptr<const PageCodec> codec_;
  uint64_t bytes_;
  DiskTier tier_;
  std::vector<Pending> pending_;
};

}  // namespace quince
