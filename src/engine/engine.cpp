#include "engine/engine.h"

#include <algorithm>
#include <future>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "constraint/constraint_state.h"
#include "engine/engine_loop.h"

namespace quince {

struct Engine::Impl {
  EngineOptions options;
  std::shared_ptr<Inbox> inbox = std::make_shared<Inbox>();
  ModelInfo info;
  std::shared_ptr<const PageCodec> codec;
  std::thread thread;
  std::mutex constraint_mutex;  // of what follows: made by whoever needs it first
  std::shared_ptr<ConstraintCompiler> compiler;
  std::unique_ptr<ConstraintWorkers> workers;  // outlive the thread, which waits for them

  std::shared_ptr<ConstraintCompiler> constraint_compiler() {
    const std::scoped_lock lock(constraint_mutex);
    if (!compiler) {
      throw UserError("answers cannot be held to a form here: the engine was given no tokenizer");
    }
    return compiler;
  }

  std::shared_ptr<ConstraintState> start_constraint(const SamplingParams& params) {
    const std::shared_ptr<ConstraintCompiler> compile = constraint_compiler();
    {
      const std::scoped_lock lock(constraint_mutex);
      if (!workers) {
        const auto cores = static_cast<int>(std::thread::hardware_concurrency());
        workers = std::make_unique<ConstraintWorkers>(std::clamp(cores / 8, 1, 4));
      }
    }
    auto constraint = compile->compile(*params.constraint);
    ConstraintState::Options how;
    how.stop_tokens = params.stop_tokens;
    how.stop_tokens.insert(
        how.stop_tokens.end(), params.end_tokens.begin(), params.end_tokens.end());
    how.jump = !params.wants_logprobs();  // every token's own logits are wanted then
    how.failed = [compile, id = constraint.get()] { compile->forget(id); };
    return ConstraintState::start(std::move(constraint), *workers, std::move(how));
  }

  std::unique_ptr<DraftModel> load_draft_model() const {
    if (!options.draft_model || options.draft_tokens == 0) {
      return nullptr;
    }
    auto draft = std::make_unique<DraftModel>(options.draft_model(), options.cache);
    if (draft->info().vocab_size != info.vocab_size) {
      throw UserError(
          "the draft model has a vocabulary of {} tokens and the model one of {}: take one of the "
          "same family",
          draft->info().vocab_size,
          info.vocab_size);
    }
    return draft;
  }

  void run(std::promise<void>& loaded, const std::function<std::unique_ptr<Model>()>& loader) {
    std::unique_ptr<Model> model;
    std::unique_ptr<EngineLoop> loop;
    try {
      model = loader();
      info = model->info();
      const std::unique_ptr<Cache> cache = model->make_cache(options.cache);
      codec = cache->codec();
      if (options.context_length == 0) {
        options.context_length = info.context_length;
      }
      if (!options.kept_bytes) {
        const int pages = (options.context_length + kCachePage - 1) / kCachePage;
        const size_t context = static_cast<size_t>(pages) * cache->page_bytes();
        options.kept_bytes =
            std::clamp(std::max(info.weight_bytes, context), size_t{64} << 20, size_t{1} << 30);
      }
      if (options.deterministic && !info.batch_invariant) {
        options.max_running = 1;
        options.kept_bytes = 0;
        options.disk.folder.clear();
        options.draft_tokens = 0;
      }
      loop = std::make_unique<EngineLoop>(*model, options, load_draft_model(), inbox);
    } catch (...) {
      loaded.set_exception(std::current_exception());
      return;
    }
    loaded.set_value();
    try {
      loop->run();
    } catch (const std::exception& error) {
      const std::string line = fmt::format(
          "the engine has stopped after an error and must be started again: {}", error.what());
      if (options.log) {
        options.log(line);
      }
      loop->abandon(std::make_exception_ptr(std::runtime_error(line)));
    }
  }

  const PageCodec& prompt_codec(const std::filesystem::path& path) const {
    if (!codec) {
      throw UserError("{}: prompt caches of this model cannot be kept in files", path.string());
    }
    return *codec;
  }

  void check_tokens(const std::vector<int32_t>& prompt) const {
    if (prompt.empty()) {
      throw UserError("the prompt is empty: it needs at least one token");
    }
    for (const int32_t token : prompt) {
      if (token < 0 || token >= info.vocab_size) {
        throw UserError(
            "prompt token {} is outside the model's vocabulary of {}", token, info.vocab_size);
      }
    }
  }

  // Both under the inbox's lock.
  void check_open() const {
    if (inbox->broken) {
      std::rethrow_exception(inbox->broken);
    }
    if (inbox->drained) {
      throw BusyError("the engine is shutting down and takes no more requests");
    }
  }
  // Takes one more of whatever kind in.
  void admit() const {
    check_open();
    if (inbox->unfinished >= options.max_running + options.max_waiting) {
      throw BusyError("the queue is full: {} requests run or wait already", inbox->unfinished);
    }
    ++inbox->unfinished;
  }

  // Has it done on the engine's thread.
  int64_t ask(PromptJob job) const {
    std::future<int64_t> done = job.done.get_future();
    {
      const std::scoped_lock lock(inbox->mutex);
      check_open();
      inbox->prompts.push_back(std::move(job));
      inbox->changed.notify_all();
    }
    return done.get();
  }

  void check(
      const std::vector<int32_t>& prompt,
      const SamplingParams& params,
      const RequestOptions& how) const {
    params.check(info.vocab_size);
    if (how.prefix && params.prompt_logprobs >= 0) {
      throw UserError("prompt_logprobs: the tokens of a prompt cache are not computed again");
    }
    check_tokens(prompt);
    const auto before = static_cast<int>(how.prefix ? how.prefix->length() : 0);
    const auto length = before + static_cast<int>(prompt.size());
    if (length + (params.max_tokens != 0 ? 1 : 0) > options.context_length) {
      throw UserError(
          "the prompt has {} tokens and the context holds {}: shorten it or raise --ctx-size",
          length,
          options.context_length);
    }
  }
};

Engine::Engine(std::function<std::unique_ptr<Model>()> loader, EngineOptions options)
    : impl_(std::make_unique<Impl>()) {
  if (options.prefill_chunk < 1) {
    throw UserError("prefill chunk is {}, want at least 1", options.prefill_chunk);
  }
  if (options.max_running < 1) {
    throw UserError("sequences at once is {}, want at least 1", options.max_running);
  }
  constexpr int kMostDrafted = 64;
  if (options.draft_tokens < 0 || options.draft_tokens > kMostDrafted) {
    throw UserError(
        "tokens to draft are {}, want from 0 to {}", options.draft_tokens, kMostDrafted);
  }
  if (!options.pool) {
    options.pool = std::make_shared<ThreadPool>(1);
  }
  impl_->options = std::move(options);
  std::promise<void> loaded;
  auto future = loaded.get_future();
  impl_->thread = std::thread(
      [impl = impl_.get(), &loaded, loader = std::move(loader)] { impl->run(loaded, loader); });
  try {
    future.get();
  } catch (...) {
    impl_->thread.join();
    throw;
  }
}

Engine::~Engine() {
  {
    std::lock_guard lock(impl_->inbox->mutex);
    impl_->inbox->closed = true;
    impl_->inbox->changed.notify_all();
  }
  impl_->thread.join();
}

const ModelInfo& Engine::info() const {
  return impl_->info;
}

int Engine::context_length() const {
  return impl_->options.context_length;
}

void Engine::check(const ConstraintSpec& form) const {
  impl_->constraint_compiler()->compile(form);
}

void Engine::set_tokenizer(const Tokenizer& tokenizer) {
  auto compiler = std::make_shared<ConstraintCompiler>(tokenizer, impl_->info.vocab_size);
  const std::scoped_lock lock(impl_->constraint_mutex);
  impl_->compiler = std::move(compiler);
}

TokenStream Engine::submit(
    std::vector<int32_t> prompt, SamplingParams params, RequestOptions options) {
  impl_->check(prompt, params, options);
  if (options.prefix) {
    prompt.insert(prompt.begin(), options.prefix->tokens.begin(), options.prefix->tokens.end());
  }
  // A prompt that is only run may fill the context.
  const int room = std::max(0, context_length() - static_cast<int>(prompt.size()));
  params.max_tokens = params.max_tokens < 0 ? room : std::min(params.max_tokens, room);
  std::shared_ptr<ConstraintState> constraint;
  if (params.constraint) {
    constraint = impl_->start_constraint(params);
  }
  auto stream = std::make_shared<StreamState>([weak = std::weak_ptr<Inbox>(impl_->inbox)] {
    if (const auto inbox = weak.lock()) {
      inbox->notify();
    }
  });
  Sequence sequence;
  sequence.request = {std::move(prompt), std::move(params), std::move(options), stream, constraint};
  sequence.submitted = std::chrono::steady_clock::now();
  {
    Inbox& inbox = *impl_->inbox;
    std::lock_guard lock(inbox.mutex);
    impl_->admit();
    inbox.requests.push_back(std::move(sequence));
    inbox.changed.notify_all();
  }
  return TokenStream(std::move(stream));
}

std::shared_ptr<EmbeddingJob> Engine::embed(
    std::vector<std::vector<int32_t>> inputs, Pooling pooling) {
  if (inputs.empty()) {
    throw UserError("there is nothing to embed");
  }
  for (const std::vector<int32_t>& input : inputs) {
    impl_->check_tokens(input);
    if (static_cast<int64_t>(input.size()) > context_length()) {
      throw UserError(
          "the text has {} tokens and the context holds {}: shorten it or raise --ctx-size",
          input.size(),
          context_length());
    }
  }
  auto job = std::make_shared<EmbeddingJob>(std::move(inputs), pooling);
  Inbox& inbox = *impl_->inbox;
  const std::lock_guard lock(inbox.mutex);
  impl_->admit();
  inbox.embeddings.push_back(job);
  inbox.changed.notify_all();
  return job;
}

std::shared_ptr<const PromptPrefix> Engine::load_prompt(const std::filesystem::path& path) const {
  const PageCodec& codec = impl_->prompt_codec(path);
  return std::make_shared<PromptPrefix>(
      make_prefix(open_prompt_cache(path), codec, impl_->info.identity));
}

void Engine::save_prompt(
    const std::vector<int32_t>& tokens,
    const std::filesystem::path& path,
    const std::string& name,
    PrefixUse use) {
  const PageCodec& codec = impl_->prompt_codec(path);
  SamplingParams params;
  params.max_tokens = 0;
  RequestOptions how;
  how.images = std::make_shared<PromptImages>();
  TokenStream stream = submit(tokens, params, how);
  while (stream.next()) {
  }
  if (stream.finish_reason() != FinishReason::length) {
    throw UserError("{}: computing the prompt was cut off", path.string());
  }
  if (how.images->pages.empty()) {
    throw ForgottenError(
        "{}: the {} tokens are more than --max-kv-size keeps, and the MLX kernels cannot write "
        "that: "
        "use --kernels native, or a larger size",
        path.string(),
        tokens.size());
  }
  if (use == PrefixUse::shared && !can_share(*how.images, codec)) {
    throw ForgottenError(
        "of these {} tokens --max-kv-size has forgotten some: they serve no other request",
        tokens.size());
  }
  write_prefix(path, *how.images, tokens, codec, impl_->info.identity, name);
}

std::vector<int32_t> Engine::restore_prompt(const std::filesystem::path& path) {
  const PageCodec& codec = impl_->prompt_codec(path);
  const auto prefix = std::make_shared<PromptPrefix>(
      make_prefix(open_prompt_cache(path), codec, impl_->info.identity, PrefixUse::shared));
  if (!prefix->tokens_known) {
    throw UserError(
        "{}: does not name its tokens, so no prompt can be found to begin with them: build it with "
        "quince cache build",
        path.string());
  }
  impl_->check_tokens(prefix->tokens);
  if (prefix->length() > context_length()) {
    throw UserError(
        "{}: has {} tokens and the context holds {}: raise --ctx-size",
        path.string(),
        prefix->length(),
        context_length());
  }
  const int64_t known = impl_->ask({prefix, {}, 0, {}});
  if (known < prefix->length() && impl_->options.disk.folder.empty()) {
    throw UserError(
        "{}: of its {} tokens there is room for {}: raise --cache-ram, or --kv-memory",
        path.string(),
        prefix->length(),
        known);
  }
  return prefix->tokens;
}

void Engine::forget_prompt(std::vector<int32_t> tokens, int64_t from) {
  impl_->ask({nullptr, std::move(tokens), from, {}});
}

void Engine::drain() {
  std::unique_lock lock(impl_->inbox->mutex);
  impl_->inbox->drained = true;
  impl_->inbox->wake = true;
  impl_->inbox->changed.notify_all();
  const bool disk = !impl_->options.disk.folder.empty();
  impl_->inbox->changed.wait(
      lock, [&] { return impl_->inbox->unfinished == 0 && (impl_->inbox->settled || !disk); });
}

std::exception_ptr Engine::failure() const {
  const std::scoped_lock lock(impl_->inbox->mutex);
  return impl_->inbox->broken;
}

EngineStats Engine::stats() const {
  std::lock_guard lock(impl_->inbox->mutex);
  return impl_->inbox->stats;
}

}  // namespace quince
