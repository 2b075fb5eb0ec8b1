// Which sequences advance in the next step, and by how many tokens. Pure policy: integers, and the
// time as a number that is passed in; no MLX, no clock, no threads of its own.
//
// A step has room for step_tokens rows. Sequences that decode come first, one row each; what is
// left goes to prompts, at most prefill_chunk tokens in all, or prefill_beside while somebody
// decodes, so that a long prompt delays the others by one chunk at a time. Order among sequences:
// priority, then fair share between tenants (start-time fair queueing, Goyal, Vin and Cheng 1996:
// whoever was served least comes first, and absence earns nothing), then arrival.
//
// Memory is counted in pages (see page_table.h). A sequence that begins goes on from the pages of
// others that began with the same tokens; while one of them is being computed it waits for it. When
// those that run need more than there is, the last in that order gives its pages back and waits; it
// goes on from what is still there by then.
//
// A step is planned before the tokens of the step before are known: planning counts the token that
// a step samples as if it were there. A sequence that has sampled its limit waits for remove().
// Drafted tokens, which somebody guessed, are computed with the token they follow; how many of them
// were right is known when the step has been read, and until then the sequence waits.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/page_table.h"

namespace quince {

using SequenceId = uint64_t;

// A sequence that is about to begin: what it may find computed, and what memory has of that.
struct Beginning {
  SequenceId id = 0;
  uint64_t root = 0;
  std::span<const int32_t> tokens;
  std::vector<bool> in_memory;  // of its first full pages that are known: whether they are whole
  int64_t found = 0;            // tokens that it could go on from
};

struct SchedulerOptions {
  int max_running = 32;    // sequences that advance; paused ones hold pages besides
  int max_waiting = 4096;  // beside those; add() refuses more
  int step_tokens = 512;
  int prefill_chunk = 512;   // most prompt tokens of a step
  int prefill_beside = 512;  // the same while others decode, who wait for it
  PageTableOptions pages;
  bool share_at_once = true;  // pages of sequences that run, not only of those that have ended
  // Asked once each time a sequence begins: whether more of it is on its way, from elsewhere. It
  // then keeps its place and waits for arrived().
  std::function<bool(const Beginning&)> elsewhere;
};

struct SequenceSpec {
  SequenceId id = 0;
  int64_t known = 0;  // tokens of the prompt, at least 1
  // The prompt, and what has been sampled and is known since: lives as long as the sequence, grows
  // at its end. Absent: nothing is shared.
  const std::vector<int32_t>* tokens = nullptr;
  uint64_t root = 0;  // sequences of different roots share nothing
  // So many of its first tokens come computed, each time it begins; then nothing else is shared.
  int64_t given = 0;
  int64_t limit = std::numeric_limits<int64_t>::max();  // tokens to sample; 0: run the prompt only
  int priority = 0;                                     // higher comes first
  std::string tenant;
  double deadline = std::numeric_limits<double>::infinity();  // same clock as plan()'s now
};

// Tokens [first, first + count) of one sequence.
struct StepWork {
  SequenceId id = 0;
  int64_t first = 0;
  int count = 0;
  bool samples = false;  // the next token is chosen after the last of them
  int drafted = 0;       // of the tokens, the last ones: a token is chosen after each, and before
};

// A sequence whose cache is empty goes on from pages of others.
struct Adoption {
  SequenceId id = 0;
  std::vector<PageId> pages;  // none: those that it comes with
  int64_t tokens = 0;
};

// A page that others may go on from: what the sequence's cache holds at that place. Known as
// `page`.
struct NamedPage {
  SequenceId id = 0;
  int64_t place = 0;
  PageId page = kNoPage;
};

// A page that was computed elsewhere, for the sequence that waits for it.
struct ArrivedPage {
  int64_t place = 0;
  std::vector<int32_t> tokens;
  bool whole = true;
};

struct Plan {
  std::vector<NamedPage> saved;        // of those preempted; to be done first
  std::vector<SequenceId> preempted;   // their caches are to be emptied before the step
  std::vector<Adoption> adopted;       // then
  std::vector<PageId> forgotten;       // then: nobody will go on from these any more
  std::vector<PageId> thinned;         // layers with a window are done with these
  std::vector<StepWork> work;          // decoding sequences first
  std::vector<NamedPage> named;        // when the step has been built
  std::vector<SequenceId> expired;     // deadline over: removed
  std::vector<SequenceId> impossible;  // need more pages than exist: removed
};

struct SchedulerStats {
  int running = 0;
  int waiting = 0;
  int64_t pages_held = 0;
  int64_t pages_kept = 0;
  int64_t preemptions = 0;
  int64_t prefix_queries = 0;  // tokens of prompts that began
  int64_t prefix_hits = 0;     // of them, tokens that were there already
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // False when the queue is full.
  bool add(const SequenceSpec& spec);
  // Ended for whatever reason; unknown ids are ignored. What is in its cache is remembered: these
  // pages are to be taken from it before it goes. Unless it is not to be: then nobody else will go
  // on from what it computed.
  std::vector<NamedPage> remove(SequenceId id, bool remember = true);
  // A step failed, and with it those after it: what they computed is no good.
  void forget_since(uint64_t step);
  uint64_t step() const {  // number of the last plan
    return step_;
  }
  // Pages that remove() and others have given up since; a plan tells its own.
  std::vector<PageId> take_forgotten();
  // What could not be taken of a page that was named: what layers with a window need, or anything.
  void set_thin(PageId page);
  void forget(PageId page);
  // For outside: what had to make room, and what is kept. With options.pages.chains.
  std::vector<GivenUpPage> take_given_up();
  std::vector<GivenUpPage> all_kept() const;
  // What `elsewhere` promised has come, as far as it could. Returns the pages that are needed:
  // what has come for that place is to be kept under that id.
  std::vector<NamedPage> arrived(SequenceId id, const std::vector<ArrivedPage>& pages);
  // The same of pages that no sequence waits for: whoever begins with their tokens goes on from
  // them. From the first one of a prompt on, as many as there is room for; they are held until
  // let_go().
  struct Remembered {
    std::vector<PageId> held;
    std::vector<NamedPage> taken;  // to be kept under their ids
  };
  Remembered remember(uint64_t root, const std::vector<ArrivedPage>& pages);
  void let_go(const std::vector<PageId>& held);
  // How many of these tokens a sequence could go on from.
  int64_t known_tokens(uint64_t root, std::span<const int32_t> tokens) const;
  // The full pages of them that are known from before that step.
  std::vector<PageId> known_pages(
      uint64_t root, std::span<const int32_t> tokens, uint64_t before) const;
  void erase(uint64_t root, std::span<const int32_t> tokens, int64_t from);  // see PageTable
  // A paused sequence keeps its pages and gets no work (its reader is behind).
  void pause(SequenceId id, bool paused);

  // The next `tokens` tokens of a sequence are known without being sampled: they count towards its
  // limit, and are computed like a prompt.
  void extend(SequenceId id, int64_t tokens);

  // The next plan may also run so many tokens that are guessed to follow, as far as there is room.
  // For a sequence whose tokens are all known.
  void draft(SequenceId id, int tokens);
  // So many of the drafted tokens of its last work were right; the others are taken back, from its
  // cache too.
  void settle(SequenceId id, int64_t right);

  Plan plan(double now);

  int64_t most_tokens() const;  // that sequences can hold together
  SchedulerStats stats() const;
  bool idle() const;  // nothing that plan() could give work to

 private:
  struct Tenant {
    int sequences = 0;
    double served = 0;  // virtual time: tokens computed for it
  };
  struct Sequence {
    SequenceSpec spec;
    int64_t known = 0;     // tokens that exist or are being sampled
    int64_t computed = 0;  // tokens whose keys and values are in the cache, or are being computed
    std::vector<PageId> pages;  // that hold them
    size_t named = 0;           // of them, from the first
    size_t adopted = 0;         // pages that others computed
    int64_t branch = 0;         // tokens that were known when it began
    int64_t thinned = 0;        // pages that have been looked at
    int64_t draft = 0;          // tokens that the next plan may run beside
    int64_t unsettled = 0;      // drafted tokens that count as computed, and may be wrong
    uint64_t arrival = 0;
    bool running = false;
    bool paused = false;
    bool asked = false;            // whether more of it is elsewhere
    bool away = false;             // and it is on its way
    std::vector<PageId> reserved;  // held until it begins: its first full pages
  };

  bool take_in(
      SequenceId id,
      uint64_t root,
      const ArrivedPage& arrived,
      std::vector<PageId>& chain,
      std::vector<NamedPage>& taken);
  int64_t pages_for(int64_t tokens) const;
  int64_t matched_pages(const Sequence& sequence) const;
  static std::span<const int32_t> given(const Sequence& sequence);
  static int64_t left(const Sequence& sequence);
  bool before(const Sequence& a, const Sequence& b) const;
  std::vector<Sequence*> in_order(bool running);
  void drop(SequenceId id, std::vector<SequenceId>& list, Plan& plan);
  void expire(double now, Plan& plan);
  void preempt(Sequence& victim, Plan& plan);
  void make_room(Plan& plan);
  void admit(Plan& plan);
  void decode(Plan& plan, int64_t& room);
  void prefill(Plan& plan, int64_t room);
  bool begin(Sequence& sequence, Plan& plan);
  int64_t drafts_for(const Sequence& sequence, int64_t room) const;
  bool waits(Sequence& sequence, const PageMatch& match);
  void give(Sequence& sequence, int64_t count, int64_t drafts, Plan& plan);
  void name_pages(Sequence& sequence, int64_t tokens, bool tail, std::vector<NamedPage>& named);
  void thin_pages(Sequence& sequence, Plan& plan);
  void let_go(Sequence& sequence);
  void release(Sequence& sequence);

  SchedulerOptions options_;
  std::map<SequenceId, Sequence> sequences_;
  std::map<std::string, Tenant> tenants_;
  uint64_t arrivals_ = 0;
  uint64_t step_ = 0;
  int running_ = 0;
  PageTable pages_;
  SchedulerStats counts_;
};

}  // namespace quince
