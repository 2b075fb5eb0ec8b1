#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "engine/generation.h"

namespace quince {

// Caches are freed on the engine thread: the timeline goes back to it when the session dies.
class Session {
 public:
  Timeline timeline;
};

namespace {

struct Job {
  Request request;
  std::shared_ptr<Session> session;
};

// What callers hand to the engine thread. Outlives the engine when a session does.
struct Inbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  std::vector<std::unique_ptr<Session>> dead_sessions;
  bool closed = false;

  void put(Job job) {
    std::lock_guard lock(mutex);
    jobs.push_back(std::move(job));
    changed.notify_one();
  }

  void bury(std::unique_ptr<Session> session) {
    std::lock_guard lock(mutex);
    if (!closed) {
      dead_sessions.push_back(std::move(session));
      changed.notify_one();
    }
  }

  // Waits for work. Nothing: the engine is to end.
  std::optional<Job> take() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !jobs.empty() || !dead_sessions.empty() || closed; });
    dead_sessions.clear();
    if (closed) {
      return std::nullopt;
    }
    if (jobs.empty()) {
      return Job{};
    }
    Job job = std::move(jobs.front());
    jobs.pop_front();
    return job;
  }
};

}  // namespace

struct Engine::Impl {
  EngineOptions options;
  std::shared_ptr<Inbox> inbox = std::make_shared<Inbox>();
  std::unique_ptr<Model> model;  // engine thread
  ModelInfo info;
  std::shared_ptr<StreamState> running;  // under inbox->mutex
  std::thread thread;

  void loop() {
    while (auto job = inbox->take()) {
      if (job->request.stream) {
        run(*job);
      }
    }
    inbox->jobs.clear();
    inbox->dead_sessions.clear();
    model.reset();
  }

  void run(Job& job) {
    const auto stream = job.request.stream;
    {
      std::lock_guard lock(inbox->mutex);
      running = stream;
      if (inbox->closed) {
        stream->cancel();
      }
    }
    try {
      Timeline own;
      Timeline& timeline = job.session ? job.session->timeline : own;
      if (!timeline.cache) {
        CacheOptions cache = options.cache;
        cache.expected_length = static_cast<int>(job.request.prompt.size()) +
                                std::min(job.request.params.max_tokens, 256);
        timeline.cache = model->make_cache(cache);
      }
      generate(*model, job.request, timeline, options.prefill_chunk);
    } catch (...) {
      stream->finish(FinishReason::error, std::current_exception());
    }
    std::lock_guard lock(inbox->mutex);
    running.reset();
  }
};

Engine::Engine(std::function<std::unique_ptr<Model>()> loader, EngineOptions options)
    : impl_(std::make_unique<Impl>()) {
  if (options.prefill_chunk < 1) {
    throw UserError("prefill chunk is {}, want at least 1", options.prefill_chunk);
  }
  impl_->options = options;
  std::promise<void> loaded;
  auto future = loaded.get_future();
  impl_->thread = std::thread([impl = impl_.get(), &loaded, loader = std::move(loader)] {
    try {
      impl->model = loader();
      impl->info = impl->model->info();
    } catch (...) {
      loaded.set_exception(std::current_exception());
      return;
    }
    loaded.set_value();
    impl->loop();
  });
  try {
    future.get();
  } catch (...) {
    impl_->thread.join();
    throw;
  }
  if (impl_->options.context_length == 0) {
    impl_->options.context_length = impl_->info.context_length;
  }
}

Engine::~Engine() {
  {
    std::lock_guard lock(impl_->inbox->mutex);
    impl_->inbox->closed = true;
    if (impl_->running) {
      impl_->running->cancel();
    }
    for (Job& job : impl_->inbox->jobs) {
      job.request.stream->finish(FinishReason::cancelled);
    }
    impl_->inbox->changed.notify_one();
  }
  impl_->thread.join();
}

const ModelInfo& Engine::info() const {
  return impl_->info;
}

int Engine::context_length() const {
  return impl_->options.context_length;
}

std::shared_ptr<Session> Engine::make_session() {
  return {new Session, [inbox = impl_->inbox](Session* session) {
            inbox->bury(std::unique_ptr<Session>(session));
          }};
}

TokenStream Engine::submit(
    std::vector<int32_t> prompt, SamplingParams params, std::shared_ptr<Session> session) {
  params.check();
  if (prompt.empty()) {
    throw UserError("the prompt is empty: it needs at least one token");
  }
  for (const int32_t token : prompt) {
    if (token < 0 || token >= impl_->info.vocab_size) {
      throw UserError(
          "prompt token {} is outside the model's vocabulary of {}", token, impl_->info.vocab_size);
    }
  }
  const auto length = static_cast<int>(prompt.size());
  const int context = context_length();
  if (length >= context && params.max_tokens != 0) {
    throw UserError(
        "the prompt has {} tokens and the context holds {}: shorten it or raise --ctx-size",
        length,
        context);
  }
  const int room = context - length;
  params.max_tokens = params.max_tokens < 0 ? room : std::min(params.max_tokens, room);
  auto stream = std::make_shared<StreamState>();
  impl_->inbox->put({{std::move(prompt), std::move(params), stream}, std::move(session)});
  return TokenStream(std::move(stream));
}

}  // namespace quince
