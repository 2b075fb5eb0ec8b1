#include "engine/disk_pages.h"

#include <utility>

#include "base/error.h"

namespace quince {

namespace {

DiskTierOptions tier_options(
    const EngineOptions& options,
    const ModelInfo& info,
    const Cache& cache,
    const std::shared_ptr<const PageCodec>& codec,
    std::function<void()> woken) {
  if (!codec || info.identity.empty()) {
    throw UserError(
        "{}: pages of this model cannot be kept on the disk; leave the folder out",
        options.disk.folder.string());
  }
  DiskTierOptions out;
  out.folder = options.disk.folder;
  out.bytes = options.disk.bytes;
  out.model = info.identity;
  out.reach = cache.reach();
  out.codec = codec;
  if (options.log) {
    out.log = options.log;
  }
  out.arrived = std::move(woken);
  return out;
}

}  // namespace

DiskPages::DiskPages(
    const EngineOptions& options,
    const ModelInfo& info,
    const Cache& cache,
    std::function<void()> woken)
    : codec_(cache.codec()),
      bytes_(options.disk.bytes),
      tier_(tier_options(options, info, cache, codec_, std::move(woken))) {}

bool DiskPages::ask(const Beginning& beginning) {
  DiskMatch match =
      tier_.match(beginning.root, beginning.tokens, beginning.in_memory, beginning.found);
  if (match.pages.empty()) {
    return false;
  }
  tier_.read(beginning.id, std::move(match.pages));
  return true;
}

void DiskPages::hand_over(PageLabel label, CachePart& part, bool wait) {
  if (!tier_.has(label.name, codec_->pieces(part))) {
    tier_.keep(std::move(label), codec_->image(part), wait);
  }
}

void DiskPages::take_over(
    std::vector<GivenUpPage> pages, const PageParts& parts, std::optional<uint64_t> behind) {
  for (GivenUpPage& page : pages) {
    const auto part = parts.find(page.id);
    if (part == parts.end()) {
      continue;
    }
    PageLabel label{page.before, page.name, std::move(page.tokens), 0};
    if (behind) {
      pending_.push_back({*behind, std::move(label), part->second});
    } else {
      hand_over(std::move(label), *part->second, false);
    }
  }
}

void DiskPages::step_done(uint64_t step) {
  std::erase_if(pending_, [&](Pending& page) {
    if (page.step > step) {
      return false;
    }
    hand_over(std::move(page.label), *page.part, false);
    return true;
  });
}

void DiskPages::step_failed() {
  pending_.clear();
}

// The most recently used first, and no more than there is room for: what is behind them is older.
void DiskPages::write_all(std::vector<GivenUpPage> pages, const PageParts& parts) {
  uint64_t bytes = 0;
  for (GivenUpPage& page : pages) {
    const auto part = parts.find(page.id);
    if (part == parts.end()) {
      continue;
    }
    bytes += codec_->bytes(codec_->pieces(*part->second));
    if (bytes > bytes_ / 8 * 7) {  // heads take some
      break;
    }
    hand_over({page.before, page.name, std::move(page.tokens), 0}, *part->second, true);
  }
  tier_.settle();
}

}  // namespace quince
