#include "server/metrics.h"

#include <map>
#include <mutex>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace quince::server {

namespace {

using Clock = std::chrono::steady_clock;
using Buckets = prometheus::Histogram::BucketBoundaries;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// vLLM's bounds.
const Buckets& first_token_buckets() {
  static const Buckets buckets{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                               0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160};
  return buckets;
}
const Buckets& gap_buckets() {
  static const Buckets buckets{
      0.001,
      0.0025,
      0.005,
      0.01,
      0.025,
      0.05,
      0.075,
      0.1,
      0.15,
      0.2,
      0.3,
      0.4,
      0.5,
      0.75,
      1,
      2.5,
      5};
  return buckets;
}
const Buckets& request_buckets() {
  static const Buckets buckets{0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5,
                               5,    10,   15,  20,  30,  40,  50, 60,  120, 240};
  return buckets;
}
const Buckets& token_buckets() {
  static const Buckets buckets{
      1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5};
  return buckets;
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  std::mutex mutex;  // of what text() does

  prometheus::Counter& counter(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
  }
  prometheus::Gauge& gauge(const std::string& name, const std::string& help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
  }
  prometheus::Histogram& histogram(
      const std::string& name, const std::string& help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
  }

  prometheus::Counter& prompt_tokens = counter("quince:prompt_tokens_total", "Tokens of prompts");
  prometheus::Counter& cached_tokens =
      counter("quince:prompt_tokens_cached_total", "Of them, found computed");
  prometheus::Counter& tokens = counter("quince:generation_tokens_total", "Tokens of answers");
  prometheus::Family<prometheus::Counter>& ended =
      prometheus::BuildCounter()
          .Name("quince:request_success_total")
          .Help("Answers that ended, by reason (abort: the client went away)")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& responses = prometheus::BuildCounter()
                                                           .Name("quince:http_responses_total")
                                                           .Help("HTTP responses by status")
                                                           .Register(registry);
  prometheus::Histogram& first_token = histogram(
      "quince:time_to_first_token_seconds",
      "From the request until its first token",
      first_token_buckets());
  prometheus::Histogram& gap =
      histogram("quince:inter_token_latency_seconds", "Between tokens", gap_buckets());
  prometheus::Histogram& whole = histogram(
      "quince:e2e_request_latency_seconds", "From the request until its end", request_buckets());
  prometheus::Histogram& queue =
      histogram("quince:request_queue_time_seconds", "Until work began", request_buckets());
  prometheus::Histogram& prefill =
      histogram("quince:request_prefill_time_seconds", "Work on the prompt", request_buckets());
  prometheus::Histogram& decode =
      histogram("quince:request_decode_time_seconds", "Work on the answer", request_buckets());
  prometheus::Histogram& request_prompt =
      histogram("quince:request_prompt_tokens", "Tokens of a prompt", token_buckets());
  prometheus::Histogram& request_tokens =
      histogram("quince:request_generation_tokens", "Tokens of an answer", token_buckets());

  prometheus::Gauge& running = gauge("quince:num_requests_running", "Requests that advance");
  prometheus::Family<prometheus::Gauge>& waiting = prometheus::BuildGauge()
                                                       .Name("quince:num_requests_waiting")
                                                       .Help("Requests that wait, by reason")
                                                       .Register(registry);
  prometheus::Gauge& kv_usage =
      gauge("quince:kv_cache_usage_perc", "Part of the room for keys and values in use, 0 to 1");
  prometheus::Gauge& resident = gauge("process_resident_memory_bytes", "Memory of this process");
  prometheus::Gauge& connections = gauge("quince:http_connections", "Open connections");
  prometheus::Family<prometheus::Gauge>& model_bytes = prometheus::BuildGauge()
                                                           .Name("quince:model_resident_bytes")
                                                           .Help("Weights in memory, by model")
                                                           .Register(registry);
  prometheus::Counter& prefix_queries =
      counter("quince:prefix_cache_queries_total", "Tokens of prompts that began");
  prometheus::Counter& prefix_hits =
      counter("quince:prefix_cache_hits_total", "Of them, found computed");
  prometheus::Counter& preemptions =
      counter("quince:num_preemptions_total", "Sequences that gave their memory up");

  // llama-server's names.
  prometheus::Counter& llama_prompt =
      counter("llamacpp:prompt_tokens_total", "Prompt tokens processed");
  prometheus::Counter& llama_prompt_seconds =
      counter("llamacpp:prompt_seconds_total", "Prompt process time");
  prometheus::Counter& llama_tokens =
      counter("llamacpp:tokens_predicted_total", "Generated tokens");
  prometheus::Counter& llama_seconds =
      counter("llamacpp:tokens_predicted_seconds_total", "Predict process time");
  prometheus::Gauge& llama_processing =
      gauge("llamacpp:requests_processing", "Requests processing");
  prometheus::Gauge& llama_deferred = gauge("llamacpp:requests_deferred", "Requests deferred");

  static void advance(prometheus::Counter& counter, int64_t to) {
    const double more = static_cast<double>(to) - counter.Value();
    if (more > 0) {
      counter.Increment(more);
    }
  }
};

class Metrics::Observer : public GenerationObserver {
 public:
  Observer(Impl& metrics, int prompt_tokens) : metrics_(metrics), prompt_tokens_(prompt_tokens) {}

  void tokens(int count) override {
    const auto now = Clock::now();
    if (last_ == Clock::time_point()) {
      metrics_.first_token.Observe(seconds_since(start_));
    } else {
      // Those that were taken together came one after another.
      const double gap = std::chrono::duration<double>(now - last_).count() / count;
      for (int i = 0; i < count; ++i) {
        metrics_.gap.Observe(gap);
      }
    }
    last_ = now;
    metrics_.tokens.Increment(count);
    metrics_.llama_tokens.Increment(count);
  }

  void end(const AnswerEnd& end) override {
    if (prompt_tokens_ > 0) {  // once for all answers to it
      metrics_.prompt_tokens.Increment(prompt_tokens_);
      metrics_.request_prompt.Observe(prompt_tokens_);
      metrics_.llama_prompt.Increment(prompt_tokens_);
      metrics_.llama_prompt_seconds.Increment(end.stats.prompt_seconds);
      metrics_.cached_tokens.Increment(end.stats.cached_tokens);
      prompt_tokens_ = 0;
    }
    ended(end.finish_reason);
    metrics_.whole.Observe(seconds_since(start_));
    metrics_.queue.Observe(end.stats.queue_seconds);
    metrics_.prefill.Observe(end.stats.prompt_seconds);
    metrics_.decode.Observe(end.stats.generation_seconds);
    metrics_.llama_seconds.Increment(end.stats.generation_seconds);
    metrics_.request_tokens.Observe(end.tokens);
  }

  void failed() override {
    ended("error");
  }
  void gone() override {
    ended("abort");
  }

 private:
  void ended(const std::string& reason) {
    metrics_.ended.Add({{"finished_reason", reason}}).Increment();
  }

  Impl& metrics_;
  int prompt_tokens_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_;
};

std::unique_ptr<GenerationObserver> Metrics::observe(int prompt_tokens) {
  return std::make_unique<Observer>(*impl_, prompt_tokens);
}

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::responded(int status) {
  impl_->responses.Add({{"status", std::to_string(status)}}).Increment();
}

void Metrics::embedded(size_t tokens) {
  const auto count = static_cast<double>(tokens);
  impl_->prompt_tokens.Increment(count);
  impl_->llama_prompt.Increment(count);
}

std::string Metrics::text(const Gauges& now) {
  Impl& m = *impl_;
  const std::scoped_lock lock(m.mutex);
  m.running.Set(now.engine.running);
  m.waiting.Add({{"reason", "capacity"}}).Set(now.engine.waiting);
  m.kv_usage.Set(
      now.kv_tokens_at_most > 0
          ? static_cast<double>(now.engine.kv_tokens) / static_cast<double>(now.kv_tokens_at_most)
          : 0);
  m.resident.Set(static_cast<double>(now.resident_bytes));
  m.connections.Set(now.connections);
  if (!now.model.empty()) {
    m.model_bytes.Add({{"model", now.model}}).Set(static_cast<double>(now.model_bytes));
  }
  m.llama_processing.Set(now.engine.running);
  m.llama_deferred.Set(now.engine.waiting);
  Impl::advance(m.prefix_queries, now.engine.prefix_queries);
  Impl::advance(m.prefix_hits, now.engine.prefix_hits);
  Impl::advance(m.preemptions, now.engine.preemptions);
  return prometheus::TextSerializer().Serialize(m.registry.Collect());
}

}  // namespace quince::server
