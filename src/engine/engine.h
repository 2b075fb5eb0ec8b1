// The narrow waist. Below it one thread owns the model, the KV caches and every MLX call; above it
// nothing knows a tensor. HTTP, CLI, batch jobs and bindings are its clients. Requests of any
// number of callers advance together, step by step (see scheduler.h), and share the keys and values
// of what they begin with (see page_table.h): the next turn of a chat computes what is new in it.
// All members may be called from any thread.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cache/cache.h"
#include "cache/memory_ladder.h"
#include "cache/prompt_prefix.h"
#include "engine/embedding.h"
#include "engine/reasoning_budget.h"
#include "engine/sampling_params.h"
#include "engine/token_stream.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace quince {

// Where pages of keys and values go that memory has no room for, and where they outlive the
// program. No folder: nowhere.
struct DiskOptions {
  std::filesystem::path folder;
  uint64_t bytes = uint64_t{10} << 30;  // that its files may have together, of whatever model
};

struct EngineOptions {
  int context_length = 0;  // most tokens a sequence may hold; 0: the model's own
  CacheOptions cache;
  int prefill_chunk = 512;  // prompt tokens a step, at least 1; half of it while others decode
  int max_running = 32;     // sequences that advance together
  int max_waiting = 4096;   // submit() refuses more
  int64_t kv_tokens = 0;    // that keys and values may be held of at once; 0: no limit
  // That keys and values may take in memory, of whoever runs and has ended; 0: no limit. See
  // cache/memory_ladder.h for what is done as it is used up.
  size_t kv_bytes = 0;
  // Keys and values of what has ended, for those who go on. Absent: as much as the weights take, or
  // a whole context if that is more; at least 64 MiB and at most 1 GiB.
  std::optional<size_t> kept_bytes;
  DiskOptions disk;
  std::function<void(const std::string&)> log;  // lines for whoever runs this; any thread
  std::shared_ptr<ThreadPool> pool;  // samples rows of a step together; absent: one after another
  // A request's logits do not depend on what else runs or ran. For models that are not
  // batch-invariant: they take one request at a time, and nothing is shared or guessed.
  bool deterministic = false;
  // Tokens that a step may guess and judge for a sequence, beside the one it samples; 0: none. What
  // comes out is the same; it is done where it has been found to be quicker.
  int draft_tokens = 0;
  bool draft_always = false;  // also where it is slower: to measure, and to test
  // A small model of the same vocabulary that guesses. Absent: texts that were there before are
  // looked up. Runs on the engine thread.
  std::function<std::unique_ptr<Model>()> draft_model;
};

// How a request stands among others; what it asks for is in SamplingParams.
struct RequestOptions {
  int priority = 0;                // higher comes first
  std::string tenant;              // tenants get equal shares
  std::optional<double> deadline;  // seconds from now; then it ends with FinishReason::deadline
  // Whether keys and values of others that began with the same tokens may be used, and this one's
  // be kept for others.
  bool cache_prompt = true;
  uint64_t cache_root = 0;  // only those of the same root share
  // The prompt follows these tokens, which are computed already: of Engine::load_prompt().
  std::shared_ptr<const PromptPrefix> prefix;
  std::optional<ReasoningBudget> reasoning;  // not beside a constraint
  std::shared_ptr<PromptImages> images;  // gets what the cache holds at the end; see save_prompt()
};

struct EngineStats {
  int running = 0;
  int waiting = 0;
  int64_t kv_tokens = 0;    // held by sequences, in whole pages, shared ones once
  int64_t kept_tokens = 0;  // of sequences that have ended
  int64_t steps = 0;
  int64_t preemptions = 0;
  int64_t prefix_queries = 0;   // tokens of prompts that began
  int64_t prefix_hits = 0;      // of them, found computed
  int64_t drafts = 0;           // guesses that were judged
  int64_t drafted_tokens = 0;   // in them
  int64_t accepted_tokens = 0;  // of them, right
  size_t page_bytes = 0;        // of kCachePage tokens
  Rung memory = Rung::none;     // with options.kv_bytes
  int64_t memory_alarms = 0;
  int64_t refusals = 0;      // sequences that needed more memory than there is
  int64_t disk_pages = 0;    // that can be read
  int64_t disk_written = 0;  // pages, since the start
  int64_t disk_read = 0;
  int64_t disk_dropped = 0;  // pages that were given up because the disk was behind
};

// Nothing is wrong with the request: it comes at a bad time.
class BusyError : public UserError {
  using UserError::UserError;
};

// What a rotating cache has forgotten is wanted.
class ForgottenError : public UserError {
  using UserError::UserError;
};

class Engine {
 public:
  // The loader runs on the engine thread; the constructor waits for it and rethrows its exception.
  Engine(std::function<std::unique_ptr<Model>()> loader, EngineOptions options);
  ~Engine();  // cancels what runs

  const ModelInfo& info() const;
  int context_length() const;

  // Needed once, before requests with a constraint; what is needed of the tokenizer is kept. Throws
  // UserError when answers in its tokens cannot be held to a form.
  void set_tokenizer(const Tokenizer& tokenizer);

  // Throws UserError: empty prompt, token outside the vocabulary, prompt that leaves no room in the
  // context (both numbers), bad parameters, a constraint that cannot be compiled (with the reason);
  // BusyError: full queue, drained engine.
  TokenStream submit(
      std::vector<int32_t> prompt, SamplingParams params, RequestOptions options = {});

  // Throws UserError, as submit() would, when answers cannot be held to this form.
  void check(const ConstraintSpec& form) const;

  // Vectors of these texts; they are computed between the steps of what is generated, outside the
  // limits on keys and values, and take nothing of caches. Throws UserError: no input, an empty
  // one, one that is longer than the context, a token outside the vocabulary; BusyError.
  std::shared_ptr<EmbeddingJob> embed(std::vector<std::vector<int32_t>> inputs, Pooling pooling);

  // A prompt cache from a file, and the tokens' cache into one, in mlx-lm's layout; see
  // cache/prompt_cache_file.h. name: what the user calls the model. Throw UserError.
  std::shared_ptr<const PromptPrefix> load_prompt(const std::filesystem::path& path) const;
  // use shared: the file is to be good for restore_prompt().
  void save_prompt(
      const std::vector<int32_t>& tokens,
      const std::filesystem::path& path,
      const std::string& name,
      PrefixUse use = PrefixUse::own);

  // What is in such a file is known to all requests from now on, as if one had computed it: those
  // that begin with its tokens go on from them, as long as they are kept. Returns the tokens.
  // Throws UserError: besides, when the file does not name its tokens, lacks what a request that
  // parts from it earlier looks at, or holds more than is kept; BusyError.
  std::vector<int32_t> restore_prompt(const std::filesystem::path& path);
  // Gives up what is kept of these tokens in memory, from the `from`-th on, but for what a request
  // holds and what other texts go on from.
  void forget_prompt(std::vector<int32_t> tokens, int64_t from = 0);

  // Refuses new requests and returns when those submitted have ended, and what is kept of them is
  // on the disk, where there is one for it.
  void drain();
  EngineStats stats() const;
  // Null, but when something went wrong outside of a step, whose errors end only the requests in
  // it: all that ran has ended with this error then, and whatever is asked for throws it.
  std::exception_ptr failure() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quince
