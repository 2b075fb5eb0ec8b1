#include "cache/disk_tier.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace quince {

namespace {

constexpr size_t kSegment = size_t{32} << 20;   // bytes of pages that make a file
constexpr size_t kWaiting = size_t{128} << 20;  // that may wait for the disk
// Fewer than a segment are written when no more have come for so long.
constexpr std::chrono::milliseconds kPatience(300);

}  // namespace

DiskTier::DiskTier(DiskTierOptions options)
    : options_(std::move(options)),
      folder_(options_.folder, {options_.model, options_.codec->format()}, options_.bytes),
      segment_bytes_(std::min<size_t>(kSegment, options_.bytes / 8)),
      index_(options_.reach, options_.codec->whole()) {
  for (const PageFolder::Found& found : folder_.scan(options_.log)) {
    const bool sound = std::all_of(
        found.segment.pages.begin(), found.segment.pages.end(), [&](const StoredPage& page) {
          return page.label.tokens.size() <= static_cast<size_t>(kCachePage) &&
                 (page.label.pieces & ~options_.codec->whole()) == 0 &&
                 page.bytes == options_.codec->bytes(page.label.pieces);
        });
    if (!sound) {
      options_.log(fmt::format(
          "{}: its pages have another size than this model's (not used)",
          (folder_.path() / found.file).string()));
      continue;
    }
    index_.add(found.file, found.segment.pages);
  }
  stats_.pages = index_.pages();
  writer_ = std::thread([this] { write_loop(); });
  reader_ = std::thread([this] { read_loop(); });
}

DiskTier::~DiskTier() {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    wanted_.clear();
    changed_.notify_all();
  }
  writer_.join();
  reader_.join();
}

bool DiskTier::knows(const PageChain& name, uint64_t pieces) const {
  const auto waiting = waiting_pieces_.find(name);
  return (waiting != waiting_pieces_.end() && (waiting->second & pieces) == pieces) ||
         index_.has(name, pieces);
}

bool DiskTier::has(const PageChain& name, uint64_t pieces) const {
  const std::scoped_lock lock(mutex_);
  return knows(name, pieces);
}

DiskMatch DiskTier::match(
    uint64_t root,
    std::span<const int32_t> tokens,
    const std::vector<bool>& in_memory,
    int64_t found) const {
  const std::scoped_lock lock(mutex_);
  return index_.match(root, tokens, in_memory, found);
}

DiskStats DiskTier::stats() const {
  const std::scoped_lock lock(mutex_);
  return stats_;
}

void DiskTier::keep(PageLabel label, PageImage image, bool wait) {
  std::unique_lock lock(mutex_);
  if (knows(label.name, image.pieces)) {
    return;
  }
  const auto fits = [&] { return waiting_bytes_ == 0 || waiting_bytes_ + image.bytes <= kWaiting; };
  if (wait) {
    hurry_ = true;
    changed_.notify_all();
    changed_.wait(lock, fits);
  } else if (!fits()) {
    ++stats_.dropped;
    return;
  }
  waiting_bytes_ += image.bytes;
  label.pieces = image.pieces;
  waiting_pieces_[label.name] = image.pieces;
  waiting_.push_back({std::move(label), std::move(image)});
  changed_.notify_all();
}

void DiskTier::settle() {
  std::unique_lock lock(mutex_);
  hurry_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return waiting_bytes_ == 0; });
  hurry_ = false;
}

void DiskTier::read(uint64_t ticket, std::vector<DiskPage> pages) {
  const std::scoped_lock lock(mutex_);
  wanted_.push_back({ticket, std::move(pages)});
  changed_.notify_all();
}

std::vector<DiskTier::Fetched> DiskTier::take_fetched() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(fetched_, {});
}

void DiskTier::write_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) {
      return;
    }
    changed_.wait_for(
        lock, kPatience, [&] { return closed_ || hurry_ || waiting_bytes_ >= segment_bytes_; });
    std::vector<Waiting> batch;
    size_t bytes = 0;
    while (!waiting_.empty() &&
           (batch.empty() || bytes + waiting_.front().image.bytes <= segment_bytes_)) {
      bytes += waiting_.front().image.bytes;
      batch.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    std::vector<PageChain> names;
    for (const Waiting& page : batch) {
      names.push_back(page.label.name);
    }
    lock.unlock();
    write_segment(std::move(batch));
    lock.lock();
    for (const PageChain& name : names) {
      waiting_pieces_.erase(name);
    }
    waiting_bytes_ -= bytes;
    changed_.notify_all();
  }
}

void DiskTier::write_segment(std::vector<Waiting> batch) {
  PageSegment segment;
  for (const Waiting& page : batch) {
    segment.pages.push_back({page.label, 0, 0, page.image.bytes});
  }
  try {
    const PageFolder::Written written =
        folder_.write(segment, [&](size_t i, std::span<std::byte> bytes) {
          batch[i].image.copy(bytes);
          batch[i].image.copy = nullptr;  // lets go of the page
        });
    complained_ = false;
    const std::scoped_lock lock(mutex_);
    for (const std::string& file : written.removed) {
      index_.remove(file);
    }
    index_.add(written.file, segment.pages);
    stats_.pages = index_.pages();
    stats_.written += static_cast<int64_t>(segment.pages.size());
  } catch (const std::exception& error) {
    if (!std::exchange(complained_, true)) {  // until it works again
      options_.log(fmt::format("{} (pages are not kept on the disk)", error.what()));
    }
  }
}

void DiskTier::read_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !wanted_.empty(); });
    if (closed_) {
      return;
    }
    const Wanted wanted = std::move(wanted_.front());
    wanted_.pop_front();
    lock.unlock();
    Fetched fetched = fetch(wanted);
    lock.lock();
    stats_.read += static_cast<int64_t>(fetched.pages.size());
    fetched_.push_back(std::move(fetched));
    lock.unlock();
    options_.arrived();
    lock.lock();
  }
}

// What cannot be read is computed instead: an answer never fails for it.
DiskTier::Fetched DiskTier::fetch(const Wanted& wanted) {
  Fetched fetched{wanted.ticket, {}};
  std::vector<std::byte> bytes;
  for (const DiskPage& page : wanted.pages) {
    bytes.resize(page.stored.bytes);
    try {
      if (!folder_.read(page.file, page.stored, bytes)) {
        lost(page.file);
        break;
      }
      const PageLabel& label = page.stored.label;
      const CachePart* before = fetched.pages.empty() ? nullptr : fetched.pages.back().part.get();
      fetched.pages.push_back(
          {page.place,
           label.tokens,
           label.pieces == options_.codec->whole(),
           options_.codec->load(page.place, label.pieces, bytes, before)});
    } catch (const UserError& error) {
      options_.log(fmt::format("{} (removed)", error.what()));
      folder_.remove(page.file);
      lost(page.file);
      break;
    } catch (const std::exception& error) {  // out of memory
      options_.log(fmt::format("{}: cannot be read: {}", page.file, error.what()));
      break;
    }
  }
  return fetched;
}

void DiskTier::lost(const std::string& file) {
  const std::scoped_lock lock(mutex_);
  index_.remove(file);
  stats_.pages = index_.pages();
}

}  // namespace quince
