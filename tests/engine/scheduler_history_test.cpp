// The scheduler against random histories.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "engine/scheduler.h"
#include "sanitizers/build.h"

namespace quince {
namespace {

SchedulerOptions options(int step_tokens, int chunk) {
  SchedulerOptions o;
  o.step_tokens = step_tokens;
  o.prefill_chunk = chunk;
  o.pages.page_tokens = 4;
  return o;
}

// What a sequence must see, whatever happens around it.
struct Shadow {
  SequenceSpec spec;
  std::vector<int32_t> tokens;  // known; all of them are in the cache, or will be
  std::vector<int32_t> cached;  // what its cache holds: the tokens that were computed there
  int64_t known = 0;
  int64_t wanted = 0;  // tokens to sample
  bool paused = false;
  bool was_paused = false;  // while it was, another one may have begun in its place
  int64_t drafted = 0;      // of the tokens, the last ones: guessed
};

// A million events in random order, with a cache that remembers from which tokens each page was
// computed. Checks after every step: pages add up (held + kept <= limit, none is held for nothing),
// rows of a sequence follow each other without a gap, each sampled token is sampled once, nothing
// is gone on from that was computed from other tokens or that a window has forgotten, drafted
// tokens that were wrong leave nothing behind, budgets hold, and nobody starves.
class RandomHistory {
 public:
  RandomHistory(const SchedulerOptions& o, uint64_t seed)
      : options_(with_disk(o)), scheduler_(options_), random_(seed) {}

  void run(int64_t events) {
    for (int64_t i = 0; i < events; ++i) {
      const auto dice = random_() % 16;
      if (dice < 3 && live_.size() < 60) {
        add();
      } else if (dice == 3 && !live_.empty()) {
        end(any(), random_() % 8 != 0);
      } else if (dice == 4 && !live_.empty()) {
        const SequenceId id = any();
        live_[id].paused = !live_[id].paused;
        live_[id].was_paused = true;
        scheduler_.pause(id, live_[id].paused);
      } else if (dice == 5 && random_() % 64 == 0) {
        fail();
      } else if (!away_.empty() && dice < 8) {
        arrive();
      } else {
        step();
      }
      if (testing::Test::HasFailure()) {
        return;
      }
    }
    for (auto& [id, shadow] : live_) {
      shadow.paused = false;
      scheduler_.pause(id, false);
    }
    for (int i = 0; i < 100000 && !live_.empty(); ++i) {
      if (!away_.empty()) {
        arrive();
      }
      step();
    }
    EXPECT_TRUE(live_.empty()) << "starved: " << live_.size();
    EXPECT_EQ(scheduler_.stats().pages_held, 0);
    EXPECT_TRUE(scheduler_.idle());
  }
  int64_t preemptions = 0;
  int64_t finished = 0;
  int64_t drafted = 0;
  int64_t arrived = 0;  // pages, of the disk
  const Scheduler& scheduler() const {
    return scheduler_;
  }

 private:
  // From which tokens a page was computed, and whether layers with a window have it still.
  struct Part {
    std::vector<int32_t> tokens;
    bool whole = true;
  };

  // What had to make room goes to a disk that forgets nothing; reading takes some steps.
  SchedulerOptions with_disk(SchedulerOptions o) {
    if (o.pages.chains) {
      o.elsewhere = [this](const Beginning& beginning) { return ask(beginning); };
    }
    return o;
  }

  static std::vector<int32_t> prefix(std::span<const int32_t> tokens, size_t count, uint64_t root) {
    std::vector<int32_t> out(tokens.begin(), tokens.begin() + static_cast<int64_t>(count));
    out.push_back(static_cast<int32_t>(root));
    return out;
  }

  bool ask(const Beginning& beginning) {
    const auto size = static_cast<size_t>(options_.pages.page_tokens);
    std::vector<ArrivedPage> pages;
    for (size_t i = 0; (i + 1) * size <= beginning.tokens.size(); ++i) {
      const auto found = disk_.find(prefix(beginning.tokens, (i + 1) * size, beginning.root));
      if (found != disk_.end()) {
        const auto own = beginning.tokens.subspan(i * size, size);
        pages.push_back({static_cast<int64_t>(i), {own.begin(), own.end()}, found->second.whole});
      } else if (i >= beginning.in_memory.size()) {
        break;
      }
    }
    if (pages.empty() || random_() % 4 == 0) {
      return false;
    }
    pages.resize(1 + random_() % pages.size());  // not all of them can be read
    away_.emplace(beginning.id, pages);          // again, when it was preempted
    return true;
  }

  void arrive() {
    const auto [id, pages] = *away_.begin();
    away_.erase(away_.begin());
    const std::vector<NamedPage> taken = scheduler_.arrived(id, pages);
    drop(scheduler_.take_forgotten());  // ids that are used again
    for (const NamedPage& page : taken) {
      const Shadow& shadow = live_.at(id);
      const auto size = static_cast<size_t>(options_.pages.page_tokens);
      const auto end = static_cast<size_t>(page.place + 1) * size;
      parts_[page.page] = disk_.at(prefix(shadow.tokens, end, shadow.spec.root));
      ++arrived;
    }
  }

  SequenceId any() {
    auto it = live_.begin();
    std::advance(it, static_cast<int64_t>(random_() % live_.size()));
    return it->first;
  }

  void add() {
    Shadow shadow;
    shadow.spec.id = ++ids_;
    // It begins as another one did.
    if (!past_.empty() && random_() % 4 != 0) {
      const std::vector<int32_t>& other = past_[random_() % past_.size()];
      shadow.tokens.assign(
          other.begin(), other.begin() + static_cast<int64_t>(random_() % (other.size() + 1)));
    }
    const auto size = std::max<size_t>(shadow.tokens.size() + random_() % 20, 1 + random_() % 90);
    while (shadow.tokens.size() < size) {
      shadow.tokens.push_back(static_cast<int32_t>(random_() % 3));
    }
    shadow.spec.known = static_cast<int64_t>(shadow.tokens.size());
    shadow.spec.root = random_() % 2;
    shadow.spec.priority = static_cast<int>(random_() % 2);
    shadow.spec.tenant = std::string(1, static_cast<char>('a' + random_() % 3));
    shadow.spec.deadline = random_() % 50 == 0 ? static_cast<double>(steps_ + 20)
                                               : std::numeric_limits<double>::infinity();
    shadow.known = shadow.spec.known;
    shadow.wanted = 1 + static_cast<int64_t>(random_() % 40);
    shadow.spec.limit = shadow.wanted;
    if (past_.size() < 50) {
      past_.push_back(shadow.tokens);
    } else {
      past_[random_() % 50] = shadow.tokens;
    }
    Shadow& kept = live_[ids_] = shadow;
    if (random_() % 8 != 0) {
      kept.spec.tokens = &kept.tokens;
    }
    if (!scheduler_.add(kept.spec)) {
      live_.erase(ids_);
    }
  }

  void save(const std::vector<NamedPage>& named) {
    for (const NamedPage& page : named) {
      const Shadow& shadow = live_.at(page.id);
      const int64_t size = options_.pages.page_tokens;
      // Behind the drafted tokens nothing is known to be right.
      const auto last =
          std::min<int64_t>((page.place + 1) * size, std::ssize(shadow.cached) - shadow.drafted);
      ASSERT_GT(last, page.place * size);
      Part part;
      part.tokens.assign(shadow.cached.begin(), shadow.cached.begin() + last);
      part.tokens.push_back(static_cast<int32_t>(shadow.spec.root));
      // A cache drops what its window has passed.
      part.whole =
          options_.pages.reach.window > std::ssize(shadow.cached) - page.place * size - size;
      if (!part.whole) {
        scheduler_.set_thin(page.page);
      }
      parts_[page.page] = part;
    }
  }

  void drop(const std::vector<PageId>& pages) {
    for (const GivenUpPage& page : scheduler_.take_given_up()) {
      const Part& part = parts_.at(page.id);
      ASSERT_TRUE(std::equal(
          page.tokens.begin(), page.tokens.end(), part.tokens.end() - 1 - std::ssize(page.tokens)));
      Part& known = disk_[part.tokens];
      known = {part.tokens, part.whole || (!known.tokens.empty() && known.whole)};
    }
    for (const PageId page : pages) {
      parts_.erase(page);
    }
  }

  void adopt(const Adoption& adoption) {
    Shadow& shadow = live_.at(adoption.id);
    EXPECT_TRUE(shadow.cached.empty());
    const int64_t size = options_.pages.page_tokens;
    const auto [window, keep] = options_.pages.reach;
    for (int64_t i = 0; i < std::ssize(adoption.pages); ++i) {
      const auto found = parts_.find(adoption.pages[static_cast<size_t>(i)]);
      ASSERT_TRUE(found != parts_.end()) << "nobody has that page";
      const std::vector<int32_t>& tokens = found->second.tokens;
      const auto last = std::min(adoption.tokens, (i + 1) * size);
      ASSERT_LE(last, std::ssize(tokens) - 1);
      EXPECT_EQ(tokens.back(), static_cast<int32_t>(shadow.spec.root));
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.begin() + last, shadow.tokens.begin()))
          << "computed from other tokens";
      if ((i + 1) * size > adoption.tokens - window + 1 || i * size < keep) {
        EXPECT_TRUE(found->second.whole) << "a window has forgotten it";
      }
    }
    ASSERT_LT(adoption.tokens, shadow.known);
    shadow.cached.assign(shadow.tokens.begin(), shadow.tokens.begin() + adoption.tokens);
  }

  void end(SequenceId id, bool remember) {
    save(scheduler_.remove(id, remember));
    drop(scheduler_.take_forgotten());
    live_.erase(id);
  }

  // The last step fails, and whoever was in it.
  void fail() {
    scheduler_.forget_since(scheduler_.step());
    for (const SequenceId id : last_) {
      if (live_.count(id)) {
        end(id, false);
      }
    }
    drop(scheduler_.take_forgotten());
  }

  // The tokens of the last step are known by now, and how good the drafts were.
  void read() {
    for (const SequenceId id : sampled_) {
      if (live_.count(id)) {
        Shadow& shadow = live_[id];
        if (shadow.drafted > 0) {
          settle(shadow);
        }
        shadow.tokens.push_back(static_cast<int32_t>(random_() % 3));
        if (shadow.wanted == 0) {
          ++finished;
          end(id, true);
        }
      }
    }
    sampled_.clear();
  }

  void settle(Shadow& shadow) {
    const auto right = static_cast<int64_t>(random_() % (shadow.drafted + 1));
    const int64_t wrong = shadow.drafted - right;
    if (!shadow.cached.empty()) {  // else it was preempted
      const auto begin = shadow.cached.end() - shadow.drafted;
      shadow.tokens.insert(shadow.tokens.end(), begin, begin + right);
      shadow.cached.resize(shadow.cached.size() - static_cast<size_t>(wrong));
    } else {
      shadow.tokens.insert(shadow.tokens.end(), static_cast<size_t>(right), 0);
    }
    shadow.known += right;
    shadow.wanted -= right;
    ASSERT_GE(shadow.wanted, 0);
    shadow.drafted = 0;
    scheduler_.settle(shadow.spec.id, right);
  }

  // Guesses for some whose tokens are all known.
  void draft() {
    for (auto& [id, shadow] : live_) {
      if (std::ssize(shadow.tokens) == shadow.known && random_() % 3 != 0) {
        scheduler_.draft(id, static_cast<int>(1 + random_() % 3));
      }
    }
  }

  void step() {
    if (random_() % 2 == 0) {  // nothing is under way, so all tokens are known
      read();
      draft();
    }
    const Plan plan = scheduler_.plan(static_cast<double>(++steps_));
    save(plan.saved);
    drop({});
    for (const SequenceId id : plan.expired) {
      EXPECT_LE(live_.at(id).spec.deadline, static_cast<double>(steps_));
      live_.erase(id);
    }
    for (const SequenceId id : plan.impossible) {
      const int64_t size = options_.pages.page_tokens;
      EXPECT_GT((live_.at(id).known + size) / size, options_.pages.limit);
      live_.erase(id);
    }
    for (const SequenceId id : plan.preempted) {
      live_.at(id).cached.clear();
      ++preemptions;
    }
    for (const Adoption& adoption : plan.adopted) {
      adopt(adoption);
    }
    drop(plan.forgotten);
    for (const PageId page : plan.thinned) {
      parts_.at(page).whole = false;
    }
    read();
    int64_t total = 0;
    std::vector<SequenceId> ended;
    last_.clear();
    for (const StepWork& work : plan.work) {
      ASSERT_TRUE(live_.count(work.id));
      Shadow& shadow = live_[work.id];
      EXPECT_FALSE(shadow.paused);
      ASSERT_EQ(work.first, std::ssize(shadow.cached)) << "gap or repetition";
      EXPECT_GE(work.count, 1);
      const int64_t known = work.first + work.count - work.drafted;
      ASSERT_EQ(shadow.drafted, 0) << "went on before it was known from where";
      ASSERT_LE(known, std::ssize(shadow.tokens));
      shadow.cached.insert(
          shadow.cached.end(), shadow.tokens.begin() + work.first, shadow.tokens.begin() + known);
      EXPECT_EQ(work.samples, std::ssize(shadow.cached) == shadow.known);
      ASSERT_LE(work.drafted, work.samples ? shadow.wanted - 1 : 0);
      shadow.drafted = work.drafted;
      drafted += work.drafted;
      for (int i = 0; i < work.drafted; ++i) {
        shadow.cached.push_back(static_cast<int32_t>(random_() % 3));
      }
      if (work.samples) {
        ++shadow.known;
        sampled_.push_back(work.id);
        if (--shadow.wanted == 0) {
          ended.push_back(work.id);
        }
      }
      total += work.count;
      last_.push_back(work.id);
    }
    save(plan.named);
    std::vector<SequenceId> served = last_;
    std::sort(served.begin(), served.end());
    EXPECT_TRUE(std::adjacent_find(served.begin(), served.end()) == served.end());
    EXPECT_LE(total, options_.step_tokens);
    check_pages();
    const bool anyone = std::any_of(
        live_.begin(), live_.end(), [](const auto& entry) { return !entry.second.paused; });
    const bool held = std::any_of(
        live_.begin(), live_.end(), [](const auto& entry) { return entry.second.paused; });
    idle_ =
        anyone && !held && away_.empty() && plan.preempted.empty() && total == 0 ? idle_ + 1 : 0;
    EXPECT_LE(idle_, 1) << "somebody could have worked";
    for (const SequenceId id : ended) {
      ++finished;
      end(id, true);
    }
  }

  void check_pages() const {
    int64_t most = 0;
    int running = 0;
    for (const auto& [id, shadow] : live_) {
      const int64_t size = options_.pages.page_tokens;
      most += (std::ssize(shadow.cached) + size - 1) / size;
      running += shadow.cached.empty() || shadow.was_paused ? 0 : 1;
    }
    const SchedulerStats stats = scheduler_.stats();
    if (!options_.pages.chains) {  // else what waits to begin holds some too
      EXPECT_LE(stats.pages_held, most);
    }
    EXPECT_LE(stats.pages_held + stats.pages_kept, options_.pages.limit);
    EXPECT_LE(stats.pages_kept, options_.pages.kept_limit);
    if (stats.pages_kept > 0) {
      EXPECT_LE(stats.pages_held + stats.pages_kept, options_.pages.alarm);
    }
    EXPECT_GE(std::ssize(parts_), stats.pages_kept);
    EXPECT_LE(std::ssize(parts_), stats.pages_held + stats.pages_kept);
    EXPECT_LE(running, options_.max_running);
    EXPECT_EQ(stats.running + stats.waiting, static_cast<int>(live_.size()));
  }

  SchedulerOptions options_;
  Scheduler scheduler_;
  std::mt19937_64 random_;
  std::map<SequenceId, Shadow> live_;
  std::map<PageId, Part> parts_;
  std::map<std::vector<int32_t>, Part> disk_;  // by prefix and root
  std::multimap<SequenceId, std::vector<ArrivedPage>> away_;
  std::vector<std::vector<int32_t>> past_;
  std::vector<SequenceId> last_;     // in the last step
  std::vector<SequenceId> sampled_;  // there
  SequenceId ids_ = 0;
  int64_t steps_ = 0;
  int idle_ = 0;
};

TEST(Scheduler, RandomHistoriesKeepTheInvariants) {
  constexpr int64_t events = test::kSanitized ? 40000 : 200000;
  int64_t preemptions = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    SchedulerOptions o = options(seed % 2 == 0 ? 24 : 64, 16);
    o.pages.limit = seed < 3 ? 40 : 100;
    o.pages.kept_limit = seed == 3 ? 10 : seed == 4 ? 0 : 1000;
    if (seed >= 5) {
      o.pages.reach = {13, seed == 6 ? 6 : 0};
    }
    if (seed >= 7) {
      o.pages.chains = true;
      o.pages.alarm = 70;
      o.pages.reach = seed == 8 ? CacheReach{13, 6} : CacheReach{};
    }
    o.share_at_once = seed != 2;
    o.max_running = 12;
    o.max_waiting = 40;
    RandomHistory history(o, seed);
    history.run(events);
    ASSERT_FALSE(HasFailure());
    preemptions += history.preemptions;
    EXPECT_GT(history.finished, events / 67);
    EXPECT_GT(history.drafted, events / 67);
    EXPECT_EQ(history.arrived > events / 200, o.pages.chains) << history.arrived;
    const SchedulerStats stats = history.scheduler().stats();
    EXPECT_GT(stats.prefix_hits, stats.prefix_queries / 50);
    EXPECT_LT(stats.prefix_hits, stats.prefix_queries);
  }
  EXPECT_GT(preemptions, events / 200);
}

}  // namespace
}  // namespace quince
