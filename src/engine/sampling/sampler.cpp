#include "engine/sampling/sampler.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <random>
#include <vector>

#include <mlx/allocator.h>
#include <mlx/backend/cpu/encoder.h>
#include <mlx/ops.h>
#include <mlx/primitives.h>
#include <mlx/random.h>

#include "engine/sampling/composed_sampler.h"
#include "engine/sampling/constraint_graph.h"
#include "engine/sampling/cpu_sampler.h"

namespace quince {

namespace mx = mlx::core;

namespace {

uint64_t seed_of(const SamplingParams& params) {
  if (params.seed) {
    return *params.seed;
  }
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// The state of one request, which MLX's thread advances. Errors are kept here rather than thrown
// there: MLX would hand on their text alone, and the next step, under way already, needs a token
// that it can look up.
class Shared {
 public:
  Shared(const SamplingParams& params, std::span<const int32_t> prompt)
      : sampler_(params, seed_of(params)), top_(params.top_logprobs) {
    sampler_.observe(prompt);
  }

  // Changes nothing: several threads may ask at once.
  SampledToken report(std::span<const float> logits, int32_t token) const {
    return report_token(logits, token, top_);
  }

  // Nothing: it failed, see check().
  std::optional<SampledToken> sample(std::span<const float> logits, const SampleRow& row) {
    ++calls_;
    try {
      return row.constraint ? constrained(logits, *row.constraint, row.position)
                            : sampler_.sample(logits, row.mask.get());
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!failure_) {
        failure_ = std::current_exception();
        failed_ = calls_;
      }
      return std::nullopt;
    }
  }

  void check(int n) const {
    const std::scoped_lock lock(mutex_);
    if (failure_ && failed_ <= n) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  SampledToken constrained(
      std::span<const float> logits, ConstraintState& constraint, int64_t position) {
    if (position > position_) {
      std::vector<int32_t> skipped = constraint.decided(position_);
      skipped.resize(static_cast<size_t>(position - position_));
      sampler_.skip(skipped);
    }
    position_ = position + 1;
    const ConstraintState::Next next = constraint.next(position);
    if (next.ended) {
      return {0, std::numeric_limits<float>::quiet_NaN(), {}};
    }
    TokenBits only;
    if (next.token) {
      only.resize(static_cast<size_t>(*next.token) / 32 + 1);
      only.back() = uint32_t{1} << (*next.token % 32);
    }
    SampledToken token = sampler_.sample(logits, next.token ? &only : next.bits.get());
    constraint.accept(position, token.id);
    return token;
  }

  CpuSampler sampler_;  // MLX's thread only, as calls_ and position_
  const int top_;
  int calls_ = 0;
  int64_t position_ = 0;      // under a constraint: of the next token that sampler_ has not seen
  mutable std::mutex mutex_;  // the engine's thread asks while MLX's samples
  std::exception_ptr failure_;
  int failed_ = 0;
};

struct NativeRow {
  std::shared_ptr<Shared> state;
  SampleRow row;
};

// One evaluation on its way to MLX's thread. MLX's queue orders the two; the atomic says so where
// tools can see it, who do not look into libmlx.
struct SampleJob {
  std::vector<NativeRow> rows;
  std::shared_ptr<ThreadPool> pool;
  const float* logits = nullptr;
  size_t size = 0;  // of a row
  int32_t* id = nullptr;
  float* logprob = nullptr;
  size_t top = 0;  // likeliest tokens a row
  int32_t* top_id = nullptr;
  float* top_logprob = nullptr;
  std::atomic<bool> queued{false};

  void run() {
    if (!queued.load(std::memory_order_acquire)) {
      throw std::logic_error("[SampleRows] runs before it was queued");
    }
    // Rows that follow on drafted tokens belong to the one before them.
    std::vector<size_t> firsts;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i == 0 || rows[i - 1].row.draft == kNoToken) {
        firsts.push_back(i);
      }
    }
    if (firsts.size() == 1) {
      return sample_from(0);
    }
    pool->run([&](Team& team) {
      for (int64_t i = team.next(); i < static_cast<int64_t>(firsts.size()); i = team.next()) {
        sample_from(firsts[static_cast<size_t>(i)]);
      }
    });
  }

  void sample_from(size_t i) {
    bool right = sample(i);
    for (; rows[i].row.draft != kNoToken; ++i) {
      right = right && id[i] == rows[i].row.draft;
      if (right) {
        right = sample(i + 1);
      } else {
        put(i + 1, {kNoToken, std::numeric_limits<float>::quiet_NaN(), {}});
      }
    }
  }

  // False: it failed.
  bool sample(size_t i) {
    const auto& [state, row] = rows[i];
    const std::span<const float> own(logits + i * size, size);
    if (row.given != kNoToken) {
      put(i, state->report(own, row.given));
      return true;
    }
    const std::optional<SampledToken> token = state->sample(own, row);
    put(i, token.value_or(SampledToken{0, std::numeric_limits<float>::quiet_NaN(), {}}));
    return token.has_value();
  }

  // Not inlined: tests/sanitizers/thread.txt names it.
  [[gnu::noinline]] void put(size_t i, const SampledToken& token) {
    id[i] = token.id;
    logprob[i] = token.logprob;
    for (size_t n = 0; n < top; ++n) {  // rows that asked for fewer are filled up
      const bool asked = n < token.top.size();
      top_id[i * top + n] = asked ? token.top[n].id : kNoToken;
      top_logprob[i * top + n] = asked ? token.top[n].logprob : kNever;
    }
  }
};

// CpuSamplers as a node of the graph.
class SampleRows : public mx::Primitive {
 public:
  SampleRows(mx::Stream stream, std::vector<NativeRow> rows, std::shared_ptr<ThreadPool> pool)
      : Primitive(stream), rows_(std::move(rows)), pool_(std::move(pool)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (mx::array& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
    }
    auto& encoder = mx::cpu::get_command_encoder(stream());
    encoder.set_input_array(inputs[0]);
    for (mx::array& output : outputs) {
      encoder.set_output_array(output);
    }
    auto job = std::make_shared<SampleJob>();
    job->rows = rows_;
    job->pool = pool_;
    job->logits = inputs[0].data<float>();
    job->size = static_cast<size_t>(inputs[0].shape(-1));
    job->id = outputs[0].data<int32_t>();
    job->logprob = outputs[1].data<float>();
    if (outputs.size() > 2) {
      job->top = static_cast<size_t>(outputs[2].shape(1));
      job->top_id = outputs[2].data<int32_t>();
      job->top_logprob = outputs[3].data<float>();
    }
    job->queued.store(true, std::memory_order_release);
    encoder.dispatch([job = std::move(job)] { job->run(); });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error("[SampleRows] runs on the CPU only");
  }

  DEFINE_NAME(SampleRows)

 private:
  std::vector<NativeRow> rows_;
  std::shared_ptr<ThreadPool> pool_;
};

// What sample_rows() knows of a sampler: on which device it runs, and how.
class RowSampler : public Sampler {
 public:
  explicit RowSampler(const SamplingParams& params) : top_(params.top_logprobs) {}
  virtual std::shared_ptr<Shared> shared() const {  // null: it is on_device()
    return nullptr;
  }
  virtual class DeviceSampler* on_device() {
    return nullptr;
  }
  int top() const {
    return top_;
  }

 private:
  int top_;
};

class NativeSampler : public RowSampler {
 public:
  NativeSampler(const SamplingParams& params, std::span<const int32_t> prompt)
      : RowSampler(params), shared_(std::make_shared<Shared>(params, prompt)) {}

  std::shared_ptr<Shared> shared() const override {
    return shared_;
  }
  void check(int n) const override {
    shared_->check(n);
  }
  void settle(int) override {}  // it stopped where a token was not the drafted one

 private:
  std::shared_ptr<Shared> shared_;
};

class DeviceSampler : public RowSampler {
 public:
  DeviceSampler(const SamplingParams& params, std::span<const int32_t> prompt)
      : RowSampler(params), composed_(params, prompt, seed_of(params)) {}

  DeviceSampler* on_device() override {
    return this;
  }
  ComposedRow sample(const mx::array& logits, const SampleRow& row, int top) {
    if (row.given != kNoToken) {
      return composed_.report(logits, row.given, top);
    }
    if (!row.constraint) {
      return sample_drafted(logits, row, top);
    }
    composed_.skip(constraint_.skipped(row), logits.shape(0));
    ComposedRow sampled =
        composed_.sample_among(logits, constraint_.words(row, logits.shape(0)), top);
    constraint_.chosen(sampled.id);
    return sampled;
  }
  // Its operations give some token whatever the logits are; only a constraint can fail.
  void check(int n) const override {
    constraint_.check(n);
  }
  void settle(int right) override {
    composed_ = std::move(after_.at(static_cast<size_t>(right)));
    after_.clear();
    drafted_.reset();
  }

 private:
  // Each of the rows is sampled as if the drafted tokens before it had been; what the sampler is
  // after each is kept, until it is known how many were.
  ComposedRow sample_drafted(const mx::array& logits, const SampleRow& row, int top) {
    if (row.draft == kNoToken && !drafted_) {
      return composed_.sample(logits, row.mask.get(), top);
    }
    if (!drafted_) {
      drafted_ = composed_;
    }
    ComposedSampler sampler = *drafted_;
    ComposedRow sampled = sampler.sample(logits, row.mask.get(), top);
    after_.push_back(std::move(sampler));
    if (row.draft != kNoToken) {
      drafted_->skip(std::span(&row.draft, 1), logits.shape(0));
    }
    return sampled;
  }

  ComposedSampler composed_;
  std::optional<ComposedSampler> drafted_;  // after the drafted tokens so far
  std::vector<ComposedSampler> after_;
  ConstraintGraph constraint_;
};

SampledRows sample_natively(
    const mx::array& logits,
    std::vector<NativeRow> rows,
    int top,
    const std::shared_ptr<ThreadPool>& pool) {
  const auto count = static_cast<int>(rows.size());
  std::vector<mx::Shape> shapes = {{count}, {count}};
  std::vector<mx::Dtype> types = {mx::int32, mx::float32};
  if (top > 0) {
    shapes.insert(shapes.end(), 2, {count, top});
    types.insert(types.end(), {mx::int32, mx::float32});
  }
  const auto outputs = mx::array::make_arrays(
      shapes,
      types,
      std::make_shared<SampleRows>(mx::default_stream(mx::Device::cpu), std::move(rows), pool),
      {mx::contiguous(logits)});
  SampledRows sampled{outputs[0], outputs[1], {}, {}};
  if (top > 0) {
    sampled.top_ids = outputs[2];
    sampled.top_logprobs = outputs[3];
  }
  return sampled;
}

SampledRows sample_composed(const mx::array& logits, std::span<const SampleRow> rows, int top) {
  std::vector<mx::array> ids;
  std::vector<mx::array> logprobs;
  std::vector<mx::array> top_ids;
  std::vector<mx::array> top_logprobs;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int at = static_cast<int>(i);
    const mx::array row = mx::slice(logits, {at, 0}, {at + 1, logits.shape(1)});
    const mx::array flat = mx::reshape(row, {-1});
    DeviceSampler& sampler = *static_cast<RowSampler*>(rows[i].sampler)->on_device();
    ComposedRow sampled = sampler.sample(flat, rows[i], top);
    ids.push_back(std::move(sampled.id));
    logprobs.push_back(std::move(sampled.logprob));
    if (top > 0) {
      top_ids.push_back(std::move(*sampled.top_ids));
      top_logprobs.push_back(std::move(*sampled.top_logprobs));
    }
  }
  SampledRows sampled{mx::concatenate(ids), mx::concatenate(logprobs), {}, {}};
  if (top > 0) {
    sampled.top_ids = mx::concatenate(top_ids, 0);
    sampled.top_logprobs = mx::concatenate(top_logprobs, 0);
  }
  return sampled;
}

}  // namespace

std::unique_ptr<Sampler> make_sampler(
    const SamplingParams& params, std::span<const int32_t> prompt, mx::Device device) {
  if (device == mx::Device::cpu) {
    return std::make_unique<NativeSampler>(params, prompt);
  }
  return std::make_unique<DeviceSampler>(params, prompt);
}

SampledRows sample_rows(
    const mx::array& logits,
    std::span<const SampleRow> rows,
    const std::shared_ptr<ThreadPool>& pool) {
  std::vector<NativeRow> native;
  int top = 0;
  for (const SampleRow& row : rows) {
    const auto* sampler = static_cast<const RowSampler*>(row.sampler);
    top = std::max(top, std::min(sampler->top(), logits.shape(1)));
    if (auto state = sampler->shared()) {
      native.push_back({std::move(state), row});
    }
  }
  return native.empty() ? sample_composed(logits, rows, top)
                        : sample_natively(logits, std::move(native), top, pool);
}

}  // namespace quince
