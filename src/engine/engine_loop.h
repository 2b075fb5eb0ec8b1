// What the engine's thread does: takes requests in, plans a step, builds and starts it, and only
// then reads the tokens of the step before, so that the processor never waits for bookkeeping.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/disk_pages.h"
#include "engine/embedder.h"
#include "engine/engine.h"
#include "engine/sequence.h"
#include "engine/speculation/speculator.h"

namespace quince {

// Something to be done, between two steps, with what is kept of a prompt.
struct PromptJob {
  std::shared_ptr<const PromptPrefix> prefix;  // to be known to all; else `tokens` are forgotten,
  std::vector<int32_t> tokens;
  int64_t from = 0;            // from here on
  std::promise<int64_t> done;  // tokens of the prefix that are known then
};

// What other threads hand to the engine's. Outlives the engine when a stream does.
struct Inbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Sequence> requests;
  std::vector<std::shared_ptr<EmbeddingJob>> embeddings;
  std::vector<PromptJob> prompts;
  bool wake = false;          // a stream was cancelled, or read from
  bool closed = false;        // end as soon as possible
  bool drained = false;       // no new requests
  bool settled = false;       // and what is kept is on the disk
  std::exception_ptr broken;  // nothing runs any more
  int unfinished = 0;
  EngineStats stats;

  void notify() {
    std::lock_guard lock(mutex);
    wake = true;
    changed.notify_all();
  }
};

class EngineLoop {
 public:
  EngineLoop(
      Model& model,
      const EngineOptions& options,
      std::unique_ptr<DraftModel> draft_model,
      std::shared_ptr<Inbox> inbox);

  void run();  // until the inbox is closed
  // After run() has thrown, when nobody knows what is held by whom: ends all that was asked for
  // with this error.
  void abandon(const std::exception_ptr& error);

 private:
  // A step that was started: whose tokens it gives, in the order of its rows.
  struct Sample {
    SequenceId id;
    int nth;           // of the calls of its sampler, from 1; 0: a token of its prompt is scored
    int64_t position;  // of the token in the answer, or the prompt
    int drafts = 0;    // drafted tokens, whose rows follow
  };
  struct Step {
    std::optional<SampledRows> rows;
    std::vector<Sample> samples;
    std::vector<SequenceId> ends;  // run for their prompt only
    std::vector<mlx::core::array> evaluated;
    std::vector<SequenceId> all;
    uint64_t number = 0;  // of its plan
    int decoded = 0;      // its rows, when it has none of a prompt
    std::chrono::steady_clock::time_point started;
  };

  bool take_requests(bool wait);
  std::vector<PromptJob> empty_inbox();
  void begin(Sequence sequence);
  void look_at_streams();
  void draft();
  bool may_draft(const Sequence& sequence) const;

  std::optional<Step> start_step();
  void handle_plan_losses(const Plan& plan);
  void adopt_pages(const Plan& plan);
  void take_arrived();
  void give_up_pages();
  void write_images(Sequence& sequence);
  void take_prompts(std::vector<PromptJob> jobs, bool closed);
  int64_t remember(const PromptPrefix& prefix);
  void forget(const PromptJob& job);
  void settle();
  void save_pages(const std::vector<NamedPage>& named);
  void drop_pages(const std::vector<PageId>& pages);
  void score_prompt(
      const StepWork& item, int first_row, Batch& batch, Step& step, std::vector<SampleRow>& rows);
  mlx::core::array step_tokens(const std::vector<StepWork>& work) const;
  std::optional<Step> build(std::vector<StepWork> work);
  std::optional<int> in_flight_row(SequenceId id) const;

  void read(const Step& step);
  int judge(const Step& step, size_t first);
  void time(const Step& step);
  void read_token(Sequence& sequence, const Sample& sample, GeneratedToken token);
  void take_token(Sequence& sequence, GeneratedToken token);
  static bool completes(const Sequence& sequence);
  void jump_ahead();
  void embed();
  void embeddings_ended(int count);
  void fail(const std::vector<SequenceId>& ids, const std::exception_ptr& error);
  void end(
      SequenceId id, FinishReason reason, std::exception_ptr error = nullptr, bool remember = true);
  void finish(Sequence& sequence, FinishReason reason, std::exception_ptr error = nullptr);
  void publish();
  void watch_memory();

  Model& model_;
  EngineOptions options_;
  std::shared_ptr<Inbox> inbox_;
  size_t page_bytes_;
  Scheduler scheduler_;
  Embedder embedder_;
  std::deque<Sequence> arriving_;  // taken in, and not begun
  std::map<SequenceId, Sequence> sequences_;
  PageParts pages_;                     // those that have a name
  std::unique_ptr<DiskPages> disk_;     // with options.disk
  std::optional<MemoryLadder> ladder_;  // with options.kv_bytes
  int64_t refusals_ = 0;
  bool stalled_ = false;  // the last plan could do nothing
  std::optional<Step> in_flight_;
  std::unique_ptr<Speculator> speculator_;  // when tokens are drafted
  std::chrono::steady_clock::time_point last_read_;
  SequenceId next_id_ = 0;
  int64_t steps_ = 0;
  int64_t drafts_ = 0;
  int64_t drafted_ = 0;
  int64_t accepted_ = 0;
};

}  // namespace quince
