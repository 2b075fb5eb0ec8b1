#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace quince {

Scheduler::Scheduler(const SchedulerOptions& options) : options_(options), pages_(options.pages) {}

int64_t Scheduler::pages_for(int64_t tokens) const {
  return (tokens + options_.pages.page_tokens - 1) / options_.pages.page_tokens;
}

// Tokens that are known and not computed. The last one of all is needed by nobody.
int64_t Scheduler::left(const Sequence& sequence) {
  const bool all_sampled =
      sequence.spec.limit > 0 && sequence.known - sequence.spec.known >= sequence.spec.limit;
  return all_sampled || sequence.unsettled > 0 ? 0 : sequence.known - sequence.computed;
}

bool Scheduler::add(const SequenceSpec& spec) {
  if (static_cast<int64_t>(sequences_.size()) >=
      static_cast<int64_t>(options_.max_running) + options_.max_waiting) {
    return false;
  }
  Tenant& tenant = tenants_[spec.tenant];
  if (tenant.sequences == 0) {
    // Whoever comes back starts where those who stayed are.
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [name, other] : tenants_) {
      if (other.sequences > 0) {
        least = std::min(least, other.served);
      }
    }
    if (least < std::numeric_limits<double>::infinity()) {
      tenant.served = std::max(tenant.served, least);
    }
  }
  ++tenant.sequences;
  Sequence sequence;
  sequence.spec = spec;
  sequence.known = spec.known;
  sequence.arrival = ++arrivals_;
  sequences_.emplace(spec.id, std::move(sequence));
  return true;
}

std::vector<NamedPage> Scheduler::remove(SequenceId id, bool remember) {
  std::vector<NamedPage> named;
  auto found = sequences_.find(id);
  if (found == sequences_.end()) {
    return named;
  }
  if (remember) {
    name_pages(found->second, found->second.computed, true, named);
  } else {
    for (size_t i = found->second.adopted; i < found->second.named; ++i) {
      pages_.forget(found->second.pages[i]);
    }
  }
  let_go(found->second);
  running_ -= found->second.running ? 1 : 0;
  auto tenant = tenants_.find(found->second.spec.tenant);
  if (--tenant->second.sequences == 0) {
    // Its debt matters only beside others that are still here.
    const bool others = std::any_of(tenants_.begin(), tenants_.end(), [](const auto& entry) {
      return entry.second.sequences > 0;
    });
    if (!others) {
      tenants_.clear();
    }
  }
  sequences_.erase(found);
  return named;
}

void Scheduler::pause(SequenceId id, bool paused) {
  auto found = sequences_.find(id);
  if (found != sequences_.end()) {
    found->second.paused = paused;
  }
}

void Scheduler::extend(SequenceId id, int64_t tokens) {
  auto found = sequences_.find(id);
  if (found != sequences_.end()) {
    Sequence& sequence = found->second;
    const int64_t sampled = sequence.known - sequence.spec.known;
    sequence.known += std::min(tokens, std::max<int64_t>(0, sequence.spec.limit - sampled));
  }
}

void Scheduler::draft(SequenceId id, int tokens) {
  auto found = sequences_.find(id);
  if (found != sequences_.end()) {
    found->second.draft = tokens;
  }
}

void Scheduler::settle(SequenceId id, int64_t right) {
  auto found = sequences_.find(id);
  if (found == sequences_.end()) {
    return;
  }
  Sequence& sequence = found->second;
  sequence.known += right;
  if (sequence.computed > 0) {  // it was not preempted since
    sequence.computed -= sequence.unsettled - right;
    while (static_cast<int64_t>(sequence.pages.size()) > pages_for(sequence.computed)) {
      pages_.let_go(sequence.pages.back());
      sequence.pages.pop_back();
    }
  }
  sequence.unsettled = 0;
}

bool Scheduler::before(const Sequence& a, const Sequence& b) const {
  if (a.spec.priority != b.spec.priority) {
    return a.spec.priority > b.spec.priority;
  }
  if (a.spec.tenant != b.spec.tenant) {
    const double served_a = tenants_.at(a.spec.tenant).served;
    const double served_b = tenants_.at(b.spec.tenant).served;
    if (served_a != served_b) {
      return served_a < served_b;
    }
  }
  return a.arrival < b.arrival;
}

std::vector<Scheduler::Sequence*> Scheduler::in_order(bool running) {
  std::vector<Sequence*> list;
  for (auto& [id, sequence] : sequences_) {
    if (sequence.running == running) {
      list.push_back(&sequence);
    }
  }
  std::sort(list.begin(), list.end(), [this](const Sequence* a, const Sequence* b) {
    return before(*a, *b);
  });
  return list;
}

// Its pages, the last one first: an end is given up before what it follows.
void Scheduler::let_go(Sequence& sequence) {
  for (size_t i = sequence.pages.size(); i-- > 0;) {
    pages_.let_go(sequence.pages[i]);
  }
  sequence.pages.clear();
  sequence.named = 0;
  sequence.computed = 0;
  sequence.adopted = 0;
  release(sequence);
  sequence.asked = false;
  sequence.away = false;
}

void Scheduler::release(Sequence& sequence) {
  for (size_t i = sequence.reserved.size(); i-- > 0;) {
    pages_.let_go(sequence.reserved[i]);
  }
  sequence.reserved.clear();
}

// Gives names to the pages of the first `tokens` tokens, as far as they are known: to full ones,
// and at the end of a sequence to the last.
void Scheduler::name_pages(
    Sequence& sequence, int64_t tokens, bool tail, std::vector<NamedPage>& named) {
  if (!sequence.spec.tokens) {
    return;
  }
  const auto size = static_cast<size_t>(options_.pages.page_tokens);
  const std::span<const int32_t> all(*sequence.spec.tokens);
  const size_t known = std::min(static_cast<size_t>(tokens), all.size());
  const size_t count =
      tail ? static_cast<size_t>(pages_for(static_cast<int64_t>(known))) : known / size;
  for (size_t& i = sequence.named; i < count; ++i) {
    const PageId parent = i == 0 ? kNoPage : sequence.pages[i - 1];
    if (parent != kNoPage && !pages_.is_named(parent)) {
      return;  // it was forgotten: nobody would come by here
    }
    const std::span<const int32_t> its = all.subspan(i * size, std::min(size, known - i * size));
    PageId& own = sequence.pages[i];
    const PageId page = pages_.name(own, parent, sequence.spec.root, its, step_);
    const bool is_new = page == own;
    if (!is_new) {  // another one computed the same: from here on it counts as shared
      pages_.let_go(own);
      pages_.hold(page);
      own = page;
    }
    // An older page that has become thin is made whole by what this sequence has.
    if (is_new || !pages_.is_whole(page)) {
      pages_.set_whole(page, step_);
      named.push_back({sequence.spec.id, static_cast<int64_t>(i), page});
    }
  }
}

// Pages that the window has passed, but for those that the end of the prompt looks at, and the
// place where it parted from what was known: others will part there too.
void Scheduler::thin_pages(Sequence& sequence, Plan& plan) {
  const auto [window, keep] = options_.pages.reach;
  const int64_t size = options_.pages.page_tokens;
  const auto looks_at = [&](int64_t position, int64_t start) {
    return start < position && start + size > position - window;
  };
  while (sequence.thinned < static_cast<int64_t>(sequence.named)) {
    const int64_t start = sequence.thinned * size;
    if (start + 2 * size > sequence.computed - window) {  // a page later than it could
      return;
    }
    const PageId page = sequence.pages[static_cast<size_t>(sequence.thinned)];
    if (pages_.named_at(page) == step_) {
      return;  // what it holds is taken after this step
    }
    if (start >= keep && !looks_at(sequence.spec.known, start) &&
        !looks_at(sequence.branch, start) && pages_.holders(page) == 1 && pages_.is_named(page) &&
        pages_.is_whole(page)) {
      pages_.set_thin(page);
      plan.thinned.push_back(page);
    }
    ++sequence.thinned;
  }
}

void Scheduler::forget_since(uint64_t step) {
  pages_.forget_since(step);
}

std::vector<PageId> Scheduler::take_forgotten() {
  return pages_.take_forgotten();
}

std::vector<GivenUpPage> Scheduler::take_given_up() {
  return pages_.take_given_up();
}

std::vector<GivenUpPage> Scheduler::all_kept() const {
  return pages_.all_kept();
}

std::vector<NamedPage> Scheduler::arrived(SequenceId id, const std::vector<ArrivedPage>& pages) {
  std::vector<NamedPage> taken;
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || !found->second.away) {
    return taken;  // it has ended, or given up its place
  }
  Sequence& sequence = found->second;
  sequence.away = false;
  for (const ArrivedPage& arrived : pages) {
    if (!take_in(id, sequence.spec.root, arrived, sequence.reserved, taken)) {
      break;
    }
  }
  return taken;
}

void Scheduler::set_thin(PageId page) {
  pages_.set_thin(page);
}

void Scheduler::forget(PageId page) {
  pages_.forget(page);
}

void Scheduler::drop(SequenceId id, std::vector<SequenceId>& list, Plan& plan) {
  list.push_back(id);
  const std::vector<NamedPage> named = remove(id);
  plan.saved.insert(plan.saved.end(), named.begin(), named.end());
}

void Scheduler::expire(double now, Plan& plan) {
  std::vector<SequenceId> late;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.spec.deadline <= now) {
      late.push_back(id);
    }
  }
  for (const SequenceId id : late) {
    drop(id, plan.expired, plan);
  }
}

void Scheduler::preempt(Sequence& victim, Plan& plan) {
  name_pages(victim, victim.computed, true, plan.saved);
  let_go(victim);
  victim.running = false;
  --running_;
  ++counts_.preemptions;
  plan.preempted.push_back(victim.spec.id);
}

// Every running sequence must have room to go on: for its next token, or for a page of its prompt.
void Scheduler::make_room(Plan& plan) {
  while (running_ > 0) {
    int64_t wanted = 0;
    Sequence* last = nullptr;
    for (auto& [id, sequence] : sequences_) {
      if (!sequence.running) {
        continue;
      }
      if (!sequence.paused) {
        const int64_t next =
            sequence.computed + std::min<int64_t>(left(sequence), options_.pages.page_tokens);
        const size_t has = std::max(sequence.pages.size(), sequence.reserved.size());
        wanted += std::max<int64_t>(0, pages_for(next) - static_cast<int64_t>(has));
      }
      if (!last || before(*last, sequence)) {
        last = &sequence;
      }
    }
    if (wanted <= pages_.free()) {
      return;
    }
    if (running_ == 1) {
      drop(last->spec.id, plan.impossible, plan);  // alone, and it still does not fit
      return;
    }
    preempt(*last, plan);
  }
}

// Pages that the sequence would share with others that run.
int64_t Scheduler::matched_pages(const Sequence& sequence) const {
  if (!sequence.spec.tokens) {
    return 0;
  }
  const PageMatch match = pages_.match(sequence.spec.root, given(sequence), step_);
  return std::count_if(match.pages.begin(), match.pages.end(), [this](PageId page) {
    return pages_.holders(page) > 0;
  });
}

// What a sequence that begins may find computed: all but the last token, which must be run.
std::span<const int32_t> Scheduler::given(const Sequence& sequence) {
  const std::span<const int32_t> all(*sequence.spec.tokens);
  return all.first(std::min(all.size(), static_cast<size_t>(sequence.known - 1)));
}

// Waiting sequences start when all their known tokens, and one more, fit beside those that run.
void Scheduler::admit(Plan& plan) {
  int64_t promised = 0;  // pages that running prompts will still take
  int paused = 0;        // take no part in steps: they must not keep others out
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.running) {
      paused += sequence.paused ? 1 : 0;
      const size_t has = std::max(sequence.pages.size(), sequence.reserved.size());
      promised += pages_for(sequence.known) - static_cast<int64_t>(has);
    }
  }
  std::vector<SequenceId> too_large;
  for (Sequence* sequence : in_order(false)) {
    if (pages_for(sequence->known + 1) > options_.pages.limit) {
      too_large.push_back(sequence->spec.id);
      continue;
    }
    if (running_ - paused >= options_.max_running) {
      break;
    }
    const bool just_preempted =
        std::find(plan.preempted.begin(), plan.preempted.end(), sequence->spec.id) !=
        plan.preempted.end();
    if (sequence->paused || just_preempted) {
      continue;
    }
    const int64_t wanted = pages_for(sequence->known + 1) - matched_pages(*sequence);
    if (running_ > 0 && wanted > pages_.free() - promised) {
      break;  // nobody overtakes: a large one would never start
    }
    promised += wanted;
    sequence->running = true;
    ++running_;
  }
  for (const SequenceId id : too_large) {
    drop(id, plan.impossible, plan);
  }
}

// Whether more of what the sequence begins with is on its way, for itself or for one that begins
// likewise. What memory has of it is held until it comes.
bool Scheduler::waits(Sequence& sequence, const PageMatch& match) {
  if (!options_.elsewhere) {
    return false;
  }
  const auto first = [&](const Sequence& s) {
    return given(s).first(
        std::min(given(s).size(), static_cast<size_t>(options_.pages.page_tokens)));
  };
  for (const auto& [id, other] : sequences_) {
    if (other.away && id != sequence.spec.id && other.spec.root == sequence.spec.root &&
        std::ranges::equal(first(other), first(sequence))) {
      return true;
    }
  }
  if (std::exchange(sequence.asked, true)) {
    return false;
  }
  Beginning beginning{sequence.spec.id, sequence.spec.root, given(sequence), {}, match.tokens};
  for (const PageId page : match.path) {
    beginning.in_memory.push_back(pages_.is_whole(page));
  }
  sequence.away = options_.elsewhere(beginning);
  for (size_t i = 0; sequence.away && i < match.path.size(); ++i) {
    if (pages_.holders(match.path[i]) == 0 && pages_.free() == 0) {
      break;
    }
    pages_.hold(match.path[i]);
    sequence.reserved.push_back(match.path[i]);
  }
  return sequence.away;
}

// Goes on from the pages of others. False: they are being computed, or read; it waits for them.
bool Scheduler::begin(Sequence& sequence, Plan& plan) {
  if (const int64_t given_tokens = sequence.spec.given; given_tokens > 0) {
    if (pages_.free() < pages_for(given_tokens)) {
      return false;
    }
    while (static_cast<int64_t>(sequence.pages.size()) < pages_for(given_tokens)) {
      sequence.pages.push_back(pages_.take());
    }
    sequence.computed = given_tokens;
    plan.adopted.push_back({sequence.spec.id, {}, given_tokens});
    return true;
  }
  if (!sequence.spec.tokens) {
    return true;
  }
  const auto size = static_cast<size_t>(options_.pages.page_tokens);
  PageMatch match = pages_.match(sequence.spec.root, given(sequence), step_);
  if (match.growing || sequence.away || waits(sequence, match)) {
    return false;
  }
  sequence.branch = match.known;
  sequence.thinned = 0;
  size_t full = static_cast<size_t>(match.tokens) / size;
  for (size_t i = 0; i < full; ++i) {
    if (pages_.holders(match.pages[i]) == 0 && pages_.free() == 0) {
      full = i;
      match.tokens = static_cast<int64_t>(full * size);
      break;
    }
    pages_.hold(match.pages[i]);
  }
  if (static_cast<size_t>(match.tokens) > full * size && pages_.free() == 0) {
    match.tokens = static_cast<int64_t>(full * size);
  }
  match.pages.resize(static_cast<size_t>(pages_for(match.tokens)));
  const auto shared = match.pages.begin() + static_cast<int64_t>(full);
  sequence.pages.assign(match.pages.begin(), shared);
  sequence.named = full;
  sequence.adopted = full;
  if (match.pages.size() > full) {
    sequence.pages.push_back(pages_.take());  // its own: the rest of the page will differ
  }
  release(sequence);
  sequence.computed = match.tokens;
  counts_.prefix_queries += static_cast<int64_t>(given(sequence).size()) + 1;
  counts_.prefix_hits += match.tokens;
  if (match.tokens > 0) {
    plan.adopted.push_back({sequence.spec.id, std::move(match.pages), match.tokens});
  }
  return true;
}

// How many of the drafted tokens can be run beside the next one. They take no page that somebody
// who runs may want in this step.
int64_t Scheduler::drafts_for(const Sequence& sequence, int64_t room) const {
  const int64_t sampled = sequence.known - sequence.spec.known;
  int64_t drafts = std::min({sequence.draft, room - 1, sequence.spec.limit - sampled - 1});
  const auto held = static_cast<int64_t>(sequence.pages.size());
  while (drafts > 0 && pages_for(sequence.computed + 1 + drafts) > held &&
         pages_for(sequence.computed + 1 + drafts) - held + running_ > pages_.free()) {
    --drafts;
  }
  return std::max<int64_t>(drafts, 0);
}

// count known tokens, and drafts behind them.
void Scheduler::give(Sequence& sequence, int64_t count, int64_t drafts, Plan& plan) {
  StepWork work;
  work.id = sequence.spec.id;
  work.first = sequence.computed;
  work.count = static_cast<int>(count + drafts);
  work.drafted = static_cast<int>(drafts);
  sequence.computed += count;
  while (static_cast<int64_t>(sequence.pages.size()) < pages_for(sequence.computed + drafts)) {
    sequence.pages.push_back(pages_.take());
  }
  work.samples = sequence.computed == sequence.known &&
                 sequence.known - sequence.spec.known < sequence.spec.limit;
  if (work.samples) {
    ++sequence.known;
  }
  tenants_.at(sequence.spec.tenant).served += static_cast<double>(work.count);
  plan.work.push_back(work);
  if (options_.share_at_once) {
    name_pages(sequence, sequence.computed, false, plan.named);
    thin_pages(sequence, plan);
  }
  sequence.computed += drafts;
  sequence.unsettled = drafts;
}

void Scheduler::decode(Plan& plan, int64_t& room) {
  for (Sequence* sequence : in_order(true)) {
    if (room > 0 && !sequence->paused && sequence->computed > 0 && left(*sequence) == 1) {
      const int64_t drafts = drafts_for(*sequence, room);
      give(*sequence, 1, drafts, plan);
      room -= 1 + drafts;
    }
  }
}

void Scheduler::prefill(Plan& plan, int64_t room) {
  for (Sequence* sequence : in_order(true)) {
    const bool served = std::any_of(plan.work.begin(), plan.work.end(), [&](const StepWork& work) {
      return work.id == sequence->spec.id;
    });
    if (room == 0 || sequence->paused || served ||
        (sequence->computed == 0 && !begin(*sequence, plan))) {
      continue;
    }
    const int64_t wanted = left(*sequence);
    // What fits into the pages that are free.
    const auto held = static_cast<int64_t>(sequence->pages.size());
    const int64_t fits =
        pages_for(sequence->computed + wanted) - held <= pages_.free()
            ? wanted
            : (held + pages_.free()) * options_.pages.page_tokens - sequence->computed;
    const int64_t count = std::min({wanted, room, fits});
    if (count > 0) {
      give(*sequence, count, 0, plan);
      room -= count;
    }
  }
}

Plan Scheduler::plan(double now) {
  Plan plan;
  ++step_;
  expire(now, plan);
  make_room(plan);
  admit(plan);
  int64_t room = options_.step_tokens;
  decode(plan, room);
  const int chunk = plan.work.empty() ? options_.prefill_chunk
                                      : std::min(options_.prefill_chunk, options_.prefill_beside);
  prefill(plan, std::min<int64_t>(room, chunk));
  for (auto& [id, sequence] : sequences_) {
    sequence.draft = 0;
  }
  plan.forgotten = pages_.take_forgotten();
  return plan;
}

int64_t Scheduler::most_tokens() const {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const int64_t size = options_.pages.page_tokens;
  return options_.pages.limit > kMost / size ? kMost : options_.pages.limit * size;
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = counts_;
  stats.running = running_;
  stats.waiting = static_cast<int>(sequences_.size()) - running_;
  stats.pages_held = pages_.held();
  stats.pages_kept = pages_.kept();
  return stats;
}

bool Scheduler::idle() const {
  return std::all_of(sequences_.begin(), sequences_.end(), [](const auto& entry) {
    return entry.second.paused || entry.second.away || left(entry.second) == 0;
  });
}

}  // namespace quince
