// What the engine's thread does with prompts that nobody runs: what comes from files becomes known
// to all, what a cache holds is noted for files, and what is kept is forgotten.
#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "engine/engine_loop.h"

namespace quince {

namespace {

constexpr uint64_t kRoot = 0;  // of all that comes from files

std::vector<ArrivedPage> pages_of(const PromptPrefix& prefix) {
  std::vector<ArrivedPage> pages;
  const std::span<const int32_t> tokens(prefix.tokens);
  for (size_t i = 0; i < prefix.pages.size(); ++i) {
    const size_t first = i * kCachePage;
    const auto its = tokens.subspan(first, std::min<size_t>(kCachePage, tokens.size() - first));
    pages.push_back(
        {static_cast<int64_t>(i), {its.begin(), its.end()}, prefix.pages[i]->is_whole()});
  }
  return pages;
}

}  // namespace

void EngineLoop::take_prompts(std::vector<PromptJob> jobs, bool closed) {
  for (PromptJob& job : jobs) {
    try {
      if (closed) {
        throw BusyError("the engine is shutting down");
      }
      int64_t known = 0;
      if (job.prefix) {
        known = remember(*job.prefix);
      } else {
        forget(job);
      }
      publish();
      job.done.set_value(known);
    } catch (...) {
      job.done.set_exception(std::current_exception());
    }
  }
}

// As if a sequence had computed it that has just ended.
int64_t EngineLoop::remember(const PromptPrefix& prefix) {
  const Scheduler::Remembered remembered = scheduler_.remember(kRoot, pages_of(prefix));
  give_up_pages();
  drop_pages(scheduler_.take_forgotten());
  for (const NamedPage& page : remembered.taken) {
    pages_[page.page] = prefix.pages[static_cast<size_t>(page.place)];
  }
  scheduler_.let_go(remembered.held);
  give_up_pages();
  drop_pages(scheduler_.take_forgotten());
  return scheduler_.known_tokens(kRoot, prefix.tokens);
}

void EngineLoop::forget(const PromptJob& job) {
  scheduler_.erase(kRoot, job.tokens, job.from);
  drop_pages(scheduler_.take_forgotten());
}

// Left empty when the cache cannot tell its pages any more. Of pages that windows have passed here,
// and that others may go on from, those are taken.
void EngineLoop::write_images(Sequence& sequence) {
  const auto codec = sequence.cache->codec();
  const uint64_t before = in_flight_ ? in_flight_->number : scheduler_.step() + 1;
  const std::vector<PageId> known =
      scheduler_.known_pages(sequence.request.options.cache_root, sequence.tokens, before);
  PromptImages images;
  for (int64_t page = 0; page * kCachePage < sequence.cache->length(); ++page) {
    std::shared_ptr<CachePart> part = sequence.cache->share(page);
    if (!part) {
      return;
    }
    const auto place = static_cast<size_t>(page);
    if (!part->is_whole() && place < known.size()) {
      const auto kept = pages_.find(known[place]);
      part = kept != pages_.end() && kept->second->is_whole() ? kept->second : part;
    }
    images.pages.push_back(codec->image(*part));
  }
  *sequence.request.options.images = std::move(images);
}

}  // namespace quince
