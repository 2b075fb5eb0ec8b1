#include "engine/engine_loop.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include <mlx/device.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include "base/error.h"

namespace quince {

namespace mx = mlx::core;

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

double now_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

SchedulerOptions scheduler_options(
    const Model& model,
    const EngineOptions& options,
    std::function<bool(const Beginning&)> elsewhere) {
  const std::unique_ptr<Cache> cache = model.make_cache(options.cache);
  SchedulerOptions out;
  out.share_at_once = cache->shares_at_once();
  out.pages.reach = cache->reach();
  out.pages.kept_limit =
      static_cast<int64_t>(*options.kept_bytes / std::max<size_t>(cache->page_bytes(), 1));
  if (!options.disk.folder.empty()) {
    out.pages.chains = true;
    out.elsewhere = std::move(elsewhere);
  }
  out.max_running = options.max_running;
  out.max_waiting = options.max_waiting;
  out.prefill_chunk = options.prefill_chunk;
  out.prefill_beside = std::max(1, options.prefill_chunk / 2);
  out.step_tokens = options.prefill_chunk + options.max_running;
  if (options.kv_tokens > 0) {
    out.pages.limit = std::max<int64_t>(1, options.kv_tokens / kCachePage);
  }
  if (options.kv_bytes > 0) {
    const auto pages =
        static_cast<int64_t>(options.kv_bytes / std::max<size_t>(cache->page_bytes(), 1));
    out.pages.limit = std::min(out.pages.limit, std::max<int64_t>(1, pages));
    out.pages.alarm = MemoryLadder::alarm(out.pages.limit);
  }
  return out;
}

// rows: evaluated.
GeneratedToken generated_token(const SampledRows& rows, size_t i) {
  GeneratedToken token{rows.ids.data<int32_t>()[i], rows.logprobs.data<float>()[i]};
  if (rows.top_ids) {
    const auto top = static_cast<size_t>(rows.top_ids->shape(1));
    const int32_t* ids = rows.top_ids->data<int32_t>() + i * top;
    const float* logprobs = rows.top_logprobs->data<float>() + i * top;
    for (size_t n = 0; n < top && ids[n] != kNoToken; ++n) {
      token.top.push_back({ids[n], logprobs[n]});
    }
  }
  return token;
}

}  // namespace

EngineLoop::EngineLoop(
    Model& model,
    const EngineOptions& options,
    std::unique_ptr<DraftModel> draft_model,
    std::shared_ptr<Inbox> inbox)
    : model_(model),
      options_(options),
      inbox_(std::move(inbox)),
      page_bytes_(model.make_cache(options.cache)->page_bytes()),
      scheduler_(scheduler_options(
          model, options, [this](const Beginning& beginning) { return disk_->ask(beginning); })),
      embedder_(model, options.cache) {
  if (!options.disk.folder.empty()) {
    disk_ = std::make_unique<DiskPages>(
        options, model.info(), *model.make_cache(options.cache), [inbox = inbox_] {
          inbox->notify();
        });
  }
  if (options.draft_tokens > 0) {
    speculator_ = std::make_unique<Speculator>(
        options.draft_tokens, options.draft_always, std::move(draft_model));
  }
  if (options.kv_bytes > 0) {
    ladder_.emplace(scheduler_.most_tokens() / kCachePage, page_bytes_);
    const int64_t whole =
        std::min(options.context_length, options.cache.max_size.value_or(options.context_length));
    if (options.log && scheduler_.most_tokens() < whole) {
      options.log(fmt::format(
          "the memory for keys and values holds {} tokens, and the context {}: what needs more "
          "will be refused",
          scheduler_.most_tokens(),
          whole));
    }
  }
  publish();
}

void EngineLoop::run() {
  while (take_requests((stalled_ || scheduler_.idle()) && !in_flight_ && embedder_.idle())) {
    take_arrived();
    look_at_streams();
    jump_ahead();
    draft();
    std::optional<Step> next = start_step();
    if (const std::optional<Step> done = std::exchange(in_flight_, std::move(next))) {
      read(*done);
    }
    embed();
    publish();
    settle();
  }
  embeddings_ended(embedder_.end_all(std::make_exception_ptr(BusyError("the engine ends"))));
  while (!sequences_.empty()) {
    end(sequences_.begin()->first, FinishReason::cancelled);
  }
  if (const std::optional<Step> last = std::exchange(in_flight_, std::nullopt)) {
    read(*last);  // whether it has failed counts for what is kept
  }
  mx::synchronize();
  if (disk_) {
    disk_->step_done(scheduler_.step());
    disk_->write_all(scheduler_.all_kept(), pages_);
  }
}

// Under its lock. What is to be done with prompts is returned, the rest is in arriving_ and
// embedder_.
std::vector<PromptJob> EngineLoop::empty_inbox() {
  std::move(inbox_->requests.begin(), inbox_->requests.end(), std::back_inserter(arriving_));
  inbox_->requests.clear();
  for (std::shared_ptr<EmbeddingJob>& job : inbox_->embeddings) {
    embedder_.add(std::move(job));
  }
  inbox_->embeddings.clear();
  return std::exchange(inbox_->prompts, {});
}

void EngineLoop::abandon(const std::exception_ptr& error) {
  std::vector<PromptJob> prompts;
  {
    const std::scoped_lock lock(inbox_->mutex);
    inbox_->broken = error;
    prompts = empty_inbox();
    inbox_->stats.running = 0;
    inbox_->stats.waiting = 0;
  }
  embedder_.end_all(error);
  for (PromptJob& job : prompts) {
    job.done.set_exception(error);
  }
  for (auto& [id, sequence] : sequences_) {
    arriving_.push_back(std::move(sequence));
  }
  for (Sequence& sequence : arriving_) {
    sequence.request.stream->finish(FinishReason::error, error);
  }
  const std::scoped_lock lock(inbox_->mutex);
  inbox_->unfinished = 0;
  inbox_->settled = true;
  inbox_->changed.notify_all();
}

// False: the engine is to end.
bool EngineLoop::take_requests(bool wait) {
  std::vector<PromptJob> prompts;
  {
    std::unique_lock lock(inbox_->mutex);
    if (wait) {
      const auto changed = [&] {
        return !inbox_->requests.empty() || !inbox_->embeddings.empty() ||
               !inbox_->prompts.empty() || inbox_->wake || inbox_->closed;
      };
      // Deadlines of paused sequences pass without anybody's doing.
      while (!inbox_->changed.wait_for(lock, std::chrono::seconds(1), changed) &&
             sequences_.empty()) {
      }
    }
    inbox_->wake = false;
    stalled_ = false;
    prompts = empty_inbox();
    if (inbox_->closed) {
      lock.unlock();
      take_prompts(std::move(prompts), true);
      for (Sequence& sequence : arriving_) {
        finish(sequence, FinishReason::cancelled);
      }
      arriving_.clear();
      return false;
    }
  }
  while (!arriving_.empty()) {
    Sequence sequence = std::move(arriving_.front());
    arriving_.pop_front();
    begin(std::move(sequence));
  }
  take_prompts(std::move(prompts), false);
  return true;
}

void EngineLoop::begin(Sequence sequence) {
  const SequenceId id = ++next_id_;
  try {
    const Request& request = sequence.request;
    CacheOptions cache = options_.cache;
    cache.expected_length =
        static_cast<int>(request.prompt.size()) + std::min(request.params.max_tokens, 256);
    sequence.cache = model_.make_cache(cache);
    // What a file does not say counts for no penalty.
    const auto& prefix = request.options.prefix;
    const size_t unknown = prefix && !prefix->tokens_known ? prefix->tokens.size() : 0;
    sequence.sampler = make_sampler(
        request.params, std::span(request.prompt).subspan(unknown), mx::default_device());
    if (request.options.reasoning) {
      sequence.reasoning.emplace(*request.options.reasoning);
    }
    sequence.id = id;
    sequence.tokens = request.prompt;
    sequence.stats.prompt_tokens = static_cast<int>(request.prompt.size());
    if (request.params.prompt_logprobs >= 0) {
      SamplingParams params;
      params.top_logprobs = request.params.prompt_logprobs;
      sequence.scorer = make_sampler(params, {}, mx::default_device());
    }
  } catch (...) {
    return finish(sequence, FinishReason::error, std::current_exception());
  }
  Sequence& kept = sequences_.emplace(id, std::move(sequence)).first->second;
  const Request& request = kept.request;
  SequenceSpec spec;
  spec.id = id;
  spec.known = static_cast<int64_t>(request.prompt.size());
  // Every token of a prompt whose tokens are reported on must be run.
  spec.tokens = request.options.cache_prompt && !kept.scorer ? &kept.tokens : nullptr;
  if (request.options.prefix) {
    spec.tokens = nullptr;
    spec.given = request.options.prefix->length();
  }
  spec.root = request.options.cache_root;
  spec.limit = request.params.max_tokens;
  spec.priority = request.options.priority;
  spec.tenant = request.options.tenant;
  if (request.options.deadline) {
    spec.deadline =
        now_seconds() - seconds(kept.submitted, Clock::now()) + *request.options.deadline;
  }
  if (!scheduler_.add(spec)) {
    end(id,
        FinishReason::error,
        std::make_exception_ptr(
            UserError("the queue is full: {} requests wait already", options_.max_waiting)));
  }
}

// Whoever was cancelled ends; whoever was paused and has been read from goes on.
void EngineLoop::look_at_streams() {
  std::vector<SequenceId> cancelled;
  for (auto& [id, sequence] : sequences_) {
    if (sequence.request.stream->cancelled()) {
      cancelled.push_back(id);
    } else if (sequence.paused && sequence.request.stream->has_room()) {
      sequence.paused = false;
      scheduler_.pause(id, false);
    }
  }
  for (const SequenceId id : cancelled) {
    end(id, FinishReason::cancelled);
  }
}

// What sequences that go have computed is kept for others.
void EngineLoop::save_pages(const std::vector<NamedPage>& named) {
  for (const NamedPage& page : named) {
    std::shared_ptr<CachePart> part = sequences_.at(page.id).cache->share(page.place);
    if (!part) {
      scheduler_.forget(page.page);
      continue;
    }
    if (!part->is_whole()) {
      scheduler_.set_thin(page.page);
    }
    pages_[page.page] = std::move(part);
  }
}

void EngineLoop::drop_pages(const std::vector<PageId>& pages) {
  for (const PageId page : pages) {
    pages_.erase(page);
  }
}

// What goes for lack of room goes to the disk. Before it is dropped, and before its ids are used
// again.
void EngineLoop::give_up_pages() {
  if (disk_) {
    disk_->take_over(
        scheduler_.take_given_up(),
        pages_,
        in_flight_ ? std::optional(in_flight_->number) : std::nullopt);
  }
}

// What was read of the disk is as if it had been computed here.
void EngineLoop::take_arrived() {
  if (!disk_) {
    return;
  }
  for (const DiskTier::Fetched& fetched : disk_->take_fetched()) {
    std::vector<ArrivedPage> pages;
    std::unordered_map<int64_t, std::shared_ptr<CachePart>> parts;
    for (const DiskTier::FetchedPage& page : fetched.pages) {
      pages.push_back({page.place, page.tokens, page.whole});
      parts.emplace(page.place, page.part);
    }
    const std::vector<NamedPage> taken = scheduler_.arrived(fetched.ticket, pages);
    give_up_pages();
    drop_pages(scheduler_.take_forgotten());
    for (const NamedPage& page : taken) {
      pages_[page.page] = parts.at(page.place);
    }
  }
}

// Nothing comes any more: what is kept is written down.
void EngineLoop::settle() {
  if (!disk_ || !sequences_.empty() || in_flight_) {
    return;
  }
  {
    const std::scoped_lock lock(inbox_->mutex);
    if (!inbox_->drained || inbox_->settled || !inbox_->requests.empty()) {
      return;
    }
  }
  disk_->write_all(scheduler_.all_kept(), pages_);
  publish();
  const std::scoped_lock lock(inbox_->mutex);
  inbox_->settled = true;
  inbox_->changed.notify_all();
}

void EngineLoop::adopt_pages(const Plan& plan) {
  for (const Adoption& adoption : plan.adopted) {
    std::vector<std::shared_ptr<CachePart>> parts;
    Sequence& sequence = sequences_.at(adoption.id);
    if (adoption.pages.empty()) {
      parts = sequence.request.options.prefix->pages;
    }
    for (const PageId page : adoption.pages) {
      parts.push_back(pages_.at(page));
    }
    sequence.cache->adopt(parts, adoption.tokens);
    if (sequence.sampled == 0) {
      sequence.stats.cached_tokens = static_cast<int>(adoption.tokens);
    }
  }
}

void EngineLoop::handle_plan_losses(const Plan& plan) {
  save_pages(plan.saved);
  give_up_pages();
  for (const SequenceId id : plan.expired) {
    end(id, FinishReason::deadline);
  }
  for (const SequenceId id : plan.impossible) {
    const auto found = sequences_.find(id);
    if (found != sequences_.end()) {
      ++refusals_;
      end(id,
          FinishReason::error,
          std::make_exception_ptr(UserError(
              "the sequence needs more than the {} tokens of memory for keys and values: shorten "
              "the prompt or lower max_tokens, now {} and {}",
              scheduler_.most_tokens(),
              found->second.request.prompt.size(),
              found->second.request.params.max_tokens)));
    }
  }
  for (const SequenceId id : plan.preempted) {
    Sequence& sequence = sequences_.at(id);
    sequence.cache->clear();
    ++sequence.stats.preemptions;
  }
}

std::optional<EngineLoop::Step> EngineLoop::start_step() {
  Plan plan = scheduler_.plan(now_seconds());
  handle_plan_losses(plan);
  try {
    adopt_pages(plan);
    drop_pages(plan.forgotten);
    for (const PageId page : plan.thinned) {
      pages_.at(page)->thin();
    }
    if (plan.work.empty()) {
      // Until something comes from outside the next plan would say the same.
      stalled_ =
          !in_flight_ && plan.preempted.empty() && plan.expired.empty() && plan.impossible.empty();
      return std::nullopt;
    }
    std::optional<Step> step = build(plan.work);
    save_pages(plan.named);
    return step;
  } catch (...) {
    scheduler_.forget_since(scheduler_.step());
    std::vector<SequenceId> ids;
    for (const StepWork& work : plan.work) {
      ids.push_back(work.id);
    }
    fail(ids, std::current_exception());
    return std::nullopt;
  }
}

// The row of the step under way whose token the sequence goes on with.
std::optional<int> EngineLoop::in_flight_row(SequenceId id) const {
  if (in_flight_) {
    for (size_t i = 0; i < in_flight_->samples.size(); ++i) {
      if (in_flight_->samples[i].id == id && in_flight_->samples[i].nth > 0) {
        return static_cast<int>(i);
      }
    }
  }
  return std::nullopt;
}

// [N] int32. Work whose token is not known yet comes first.
mx::array EngineLoop::step_tokens(const std::vector<StepWork>& work) const {
  std::vector<int32_t> rows;   // of the step under way
  std::vector<int32_t> known;  // tokens
  for (const StepWork& item : work) {
    const std::vector<int32_t>& tokens = sequences_.at(item.id).tokens;
    if (item.first + item.count - item.drafted > static_cast<int64_t>(tokens.size())) {
      rows.push_back(*in_flight_row(item.id));
    } else {
      const auto begin = tokens.begin() + item.first;
      known.insert(known.end(), begin, begin + item.count - item.drafted);
      const auto& draft = sequences_.at(item.id).draft;
      known.insert(known.end(), draft.begin(), draft.begin() + item.drafted);
    }
  }
  mx::array host(known.begin(), {static_cast<int>(known.size())}, mx::int32);
  if (rows.empty()) {
    return host;
  }
  mx::array sampled = in_flight_->rows->ids;
  bool all = rows.size() == in_flight_->samples.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    all = all && rows[i] == static_cast<int32_t>(i);
  }
  if (!all) {
    sampled =
        mx::take(sampled, mx::array(rows.begin(), {static_cast<int>(rows.size())}, mx::int32), 0);
  }
  return known.empty() ? sampled : mx::concatenate({sampled, host});
}

// Rows of the prompt whose next token is in it.
void EngineLoop::score_prompt(
    const StepWork& item, int first_row, Batch& batch, Step& step, std::vector<SampleRow>& rows) {
  const Sequence& sequence = sequences_.at(item.id);
  const auto& prompt = sequence.request.prompt;
  for (int64_t i = 0; i < item.count; ++i) {
    const auto next = static_cast<size_t>(item.first + i + 1);
    if (next < prompt.size()) {
      batch.logit_rows.push_back(first_row + static_cast<int>(i));
      rows.push_back({sequence.scorer.get(), nullptr, prompt[next]});
      step.samples.push_back({item.id, 0, static_cast<int64_t>(next)});
    }
  }
}

std::optional<EngineLoop::Step> EngineLoop::build(std::vector<StepWork> work) {
  // In the order of the step under way, so that its tokens can be taken as they are.
  const auto place = [this](const StepWork& item) {
    const bool unknown = item.first + item.count - item.drafted >
                         static_cast<int64_t>(sequences_.at(item.id).tokens.size());
    return unknown ? *in_flight_row(item.id) : std::numeric_limits<int>::max();
  };
  std::stable_sort(work.begin(), work.end(), [&](const StepWork& a, const StepWork& b) {
    return place(a) < place(b);
  });
  Step step;
  Batch batch{step_tokens(work), {}, {}};
  std::vector<SampleRow> samplers;
  int row = 0;
  const auto now = Clock::now();
  for (const StepWork& item : work) {
    Sequence& sequence = sequences_.at(item.id);
    if (sequence.started == Clock::time_point()) {
      sequence.started = now;
      sequence.stats.queue_seconds = seconds(sequence.submitted, now);
      sequence.stats.begun = true;
      sequence.request.stream->set_stats(sequence.stats);
    }
    batch.segments.push_back({sequence.cache.get(), item.count});
    if (sequence.scorer) {
      score_prompt(item, row, batch, step, samplers);
    }
    row += item.count;
    step.all.push_back(item.id);
    if (item.samples) {
      const int64_t position =
          item.first + item.count - item.drafted - sequence.stats.prompt_tokens;
      for (int i = 0; i <= item.drafted; ++i) {
        batch.logit_rows.push_back(row - 1 - item.drafted + i);
        samplers.push_back(
            {sequence.sampler.get(), nullptr, kNoToken, sequence.request.constraint, position + i});
        samplers.back().draft =
            i < item.drafted ? sequence.draft[static_cast<size_t>(i)] : kNoToken;
        step.samples.push_back({item.id, ++sequence.sampled, position + i, item.drafted - i});
      }
      sequence.draft.resize(static_cast<size_t>(item.drafted));
    } else if (
        sequence.request.params.max_tokens == 0 &&
        item.first + item.count == sequence.stats.prompt_tokens) {
      step.ends.push_back(item.id);
    }
  }
  mx::array logits = model_.forward(batch);
  if (samplers.empty()) {
    step.evaluated = {std::move(logits)};
  } else {
    step.rows = sample_rows(logits, samplers, options_.pool);
    step.evaluated = {step.rows->ids, step.rows->logprobs};
    if (step.rows->top_ids) {
      step.evaluated.insert(step.evaluated.end(), {*step.rows->top_ids, *step.rows->top_logprobs});
    }
  }
  mx::async_eval(step.evaluated);
  step.number = scheduler_.step();
  step.started = now;
  const bool decodes = std::all_of(work.begin(), work.end(), [](const StepWork& item) {
    return item.samples && item.count == 1 + item.drafted;
  });
  step.decoded = decodes ? row : 0;
  ++steps_;
  return step;
}

void EngineLoop::read(const Step& step) {
  try {
    mx::eval(step.evaluated);
  } catch (...) {
    // The step that has been started since computes with what this one left behind.
    const auto error = std::current_exception();
    if (disk_) {
      disk_->step_failed();
    }
    scheduler_.forget_since(step.number);
    fail(step.all, error);
    if (in_flight_) {
      const std::vector<SequenceId> behind = std::exchange(in_flight_, std::nullopt)->all;
      fail(behind, error);
    }
    return;
  }
  if (disk_) {
    disk_->step_done(step.number);
  }
  time(step);
  int right = 0;  // drafted tokens whose rows are still to be read
  for (size_t i = 0; i < step.samples.size(); ++i) {
    const Sample& sample = step.samples[i];
    const auto found = sequences_.find(sample.id);
    if (found == sequences_.end()) {
      continue;
    }
    const bool follows = i > 0 && step.samples[i - 1].drafts > 0;
    if (follows && right-- == 0) {
      right = 0;
      continue;  // behind a token that was guessed wrong
    }
    if (!follows && sample.drafts > 0) {
      right = judge(step, i);
      if (!sequences_.contains(sample.id)) {
        continue;
      }
    }
    GeneratedToken token = generated_token(*step.rows, i);
    if (sample.nth > 0) {
      read_token(found->second, sample, std::move(token));
    } else {
      found->second.request.stream->set_prompt_logprob(
          static_cast<size_t>(sample.position - 1), std::move(token));
    }
  }
  for (const SequenceId id : step.ends) {
    end(id, FinishReason::length);
  }
}

void EngineLoop::read_token(Sequence& sequence, const Sample& sample, GeneratedToken token) {
  try {
    sequence.sampler->check(sample.nth);
  } catch (...) {
    return fail({sequence.id}, std::current_exception());
  }
  if (const auto& constraint = sequence.request.constraint) {
    if (sample.position < sequence.generated()) {
      return;  // was decided, and taken, before it was sampled
    }
    constraint->accept(sample.position, token.id);
    if (constraint->ended(sample.position)) {
      return end(sequence.id, FinishReason::stop);
    }
  } else if (sequence.reasoning && sample.position < sequence.generated()) {
    return;  // likewise
  }
  take_token(sequence, std::move(token));
}

void EngineLoop::take_token(Sequence& sequence, GeneratedToken token) {
  const SamplingParams& params = sequence.request.params;
  const auto now = Clock::now();
  if (sequence.generated() == 0) {
    sequence.first_token = now;
    sequence.stats.prompt_seconds = seconds(sequence.started, now);
  }
  sequence.stats.generation_seconds = seconds(sequence.first_token, now);
  sequence.tokens.push_back(token.id);
  if (sequence.reasoning) {
    sequence.reasoning->take(token.id);
  }
  if (params.ends(token.id)) {
    return end(sequence.id, FinishReason::stop);
  }
  sequence.stats.generated_tokens = static_cast<int>(sequence.generated());
  sequence.request.stream->set_stats(sequence.stats);
  if (!sequence.request.stream->push(std::move(token)) && !sequence.paused) {
    sequence.paused = true;
    scheduler_.pause(sequence.id, true);
  }
  if (sequence.generated() == params.max_tokens) {
    end(sequence.id, completes(sequence) ? FinishReason::stop : FinishReason::length);
  } else if (
      sequence.request.constraint && sequence.request.constraint->ended(sequence.generated())) {
    end(sequence.id, FinishReason::stop);
  }
}

// Whether the constraint ends the answer with its last token; waits to know.
bool EngineLoop::completes(const Sequence& sequence) {
  try {
    const auto& constraint = sequence.request.constraint;
    return constraint && constraint->next(sequence.generated()).ended;
  } catch (const UserError&) {
    return false;  // fails at the next token, which nobody wants
  }
}

// Tokens that a constraint, or a budget, leaves no choice about are taken as they are, and computed
// together. The one that a step under way is sampling is among them.
void EngineLoop::jump_ahead() {
  std::vector<SequenceId> held;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.request.constraint || (sequence.reasoning && sequence.reasoning->due())) {
      held.push_back(id);
    }
  }
  for (const SequenceId id : held) {
    Sequence& sequence = sequences_.at(id);
    const auto& constraint = sequence.request.constraint;
    std::vector<Token> decided =
        constraint ? constraint->decided(sequence.generated()) : sequence.reasoning->closing();
    const auto left = static_cast<size_t>(
        std::max<int64_t>(0, sequence.request.params.max_tokens - sequence.generated()));
    decided.resize(std::min(decided.size(), left));
    const size_t sampling = in_flight_row(id) ? 1 : 0;
    const bool begun = sampling != 0 || sequence.generated() > 0;
    // What is being sampled is held to a constraint, but knows nothing of a budget.
    const size_t least = constraint ? sampling + 1 : std::max<size_t>(sampling, 1);
    if (!begun || decided.size() < least || sequence.paused) {
      continue;
    }
    if (!constraint) {
      sequence.reasoning->close();
    }
    if (decided.size() > sampling) {
      scheduler_.extend(id, static_cast<int64_t>(decided.size() - sampling));
    }
    for (const Token token : decided) {
      if (sequences_.contains(id)) {
        take_token(sequence, {token, std::numeric_limits<float>::quiet_NaN()});
      }
    }
  }
}

// A batch of them after each step: half as large beside others, as prompts are.
void EngineLoop::embed() {
  if (!embedder_.idle()) {
    const int chunk = options_.prefill_chunk;
    embeddings_ended(embedder_.step(sequences_.empty() ? chunk : std::max(1, chunk / 2)));
  }
}

void EngineLoop::embeddings_ended(int count) {
  if (count > 0) {
    std::lock_guard lock(inbox_->mutex);
    inbox_->unfinished -= count;
    inbox_->changed.notify_all();
  }
}

// What their caches hold is not known any more.
void EngineLoop::fail(const std::vector<SequenceId>& ids, const std::exception_ptr& error) {
  for (const SequenceId id : ids) {
    const auto found = sequences_.find(id);
    if (found != sequences_.end()) {
      end(id, FinishReason::error, error, false);
    }
  }
}

void EngineLoop::end(SequenceId id, FinishReason reason, std::exception_ptr error, bool remember) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) {
    return;
  }
  save_pages(scheduler_.remove(id, remember));
  give_up_pages();
  drop_pages(scheduler_.take_forgotten());
  Sequence sequence = std::move(found->second);
  sequences_.erase(found);
  if (speculator_) {
    speculator_->forget(id);
  }
  if (sequence.request.options.images && !error) {
    write_images(sequence);
  }
  sequence.cache.reset();
  publish();  // before the owner can know
  finish(sequence, reason, std::move(error));
}

void EngineLoop::finish(Sequence& sequence, FinishReason reason, std::exception_ptr error) {
  sequence.request.stream->set_stats(sequence.stats);
  sequence.request.stream->finish(reason, std::move(error));
  std::lock_guard lock(inbox_->mutex);
  --inbox_->unfinished;
  inbox_->changed.notify_all();
}

void EngineLoop::watch_memory() {
  if (!ladder_) {
    return;
  }
  const SchedulerStats stats = scheduler_.stats();
  const std::optional<std::string> line =
      ladder_->look({stats.pages_held, stats.pages_kept, stats.preemptions, refusals_});
  if (line && options_.log) {
    options_.log(*line);
  }
}

void EngineLoop::publish() {
  watch_memory();
  const SchedulerStats stats = scheduler_.stats();
  const DiskStats disk = disk_ ? disk_->stats() : DiskStats();
  std::lock_guard lock(inbox_->mutex);
  inbox_->stats = {
      stats.running,
      stats.waiting,
      stats.pages_held * kCachePage,
      stats.pages_kept * kCachePage,
      steps_,
      stats.preemptions,
      stats.prefix_queries,
      stats.prefix_hits,
      drafts_,
      drafted_,
      accepted_,
      page_bytes_,
      ladder_ ? ladder_->rung() : Rung::none,
      ladder_ ? ladder_->alarms() : 0,
      refusals_,
      disk.pages,
      disk.written,
      disk.read,
      disk.dropped};
}

}  // namespace quince
