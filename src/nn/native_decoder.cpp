// The decoder stack on our own CPU kernels: one MLX primitive a step, so that MLX's laziness (step
// n + 1 is built and queued before the tokens of step n are read) costs one dispatch.
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

#include <mlx/backend/cpu/encoder.h>
#include <mlx/mlx.h>
#include <mlx/primitives.h>

#include "base/error.h"
#include "kernels/cpu.h"
#include "nn/decoder.h"
#include "nn/native_cache.h"
#include "nn/native_step.h"
#include "nn/native_weights.h"
#include "nn/rope_scaling.h"

namespace quince {

namespace {

namespace mx = mlx::core;

// What all steps of a decoder compute with. Steps keep it alive.
struct Machine {
  std::shared_ptr<ThreadPool> pool;
  std::mutex turn;  // of a step: MLX has a stream, with its own thread, for each thread that builds
  Workspace workspace;  // of the step whose turn it is
};

// A step on its way from the thread that built it to the stream's thread. MLX's queue orders the
// two; the atomic says so where tools can see it, who do not look into libmlx.
struct QueuedStep {
  explicit QueuedStep(NativeStep built) : step(std::move(built)) {}
  const NativeStep step;
  std::atomic<bool> queued{false};
};

// inputs: tokens [N] int32, then the tickets of the steps that must run before. outputs: logits
// [R, vocab_size] f32, or states [R, hidden_size], and this step's ticket, [1] bool.
class NativeStepPrimitive : public mx::Primitive {
 public:
  NativeStepPrimitive(mx::Stream stream, std::shared_ptr<Machine> machine, NativeStep step)
      : Primitive(stream),
        machine_(std::move(machine)),
        step_(std::make_shared<QueuedStep>(std::move(step))) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (mx::array& output : outputs) {
      output.set_data(mx::allocator::malloc(std::max<size_t>(output.nbytes(), 1)));
    }
    const mx::array& tokens = inputs.front();
    step_->queued.store(true, std::memory_order_release);
    std::function<void()> task = [machine = machine_,
                                  step = step_,
                                  ids = tokens.data<int32_t>(),
                                  stride = tokens.size() > 1 ? tokens.strides(0) : 1,
                                  logits = outputs[0].data<float>(),
                                  ticket = outputs[1].data<bool>()] {
      if (!step->queued.load(std::memory_order_acquire)) {
        throw std::logic_error("[NativeStep] runs before it was queued");
      }
      std::lock_guard lock(machine->turn);
      step->step.run(*machine->pool, machine->workspace, ids, stride, logits);
      *ticket = true;
    };
    mx::cpu::get_command_encoder(stream()).dispatch(std::move(task));
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::logic_error("[NativeStep] runs on the CPU only");
  }

  DEFINE_NAME(NativeStep)

 private:
  std::shared_ptr<Machine> machine_;
  std::shared_ptr<QueuedStep> step_;
};

// Segments of so many rows are worth being attended row by row.
constexpr int kFewRows = 8;

class NativeDecoder : public Decoder {
 public:
  NativeDecoder(const DecoderSpec& spec, Weights& weights, const LoadOptions& options)
      : machine_(std::make_shared<Machine>()),
        model_(std::make_shared<const NativeModel>(NativeModel{
            load_native_weights(spec, weights, options),
            LayerKinds(spec),
            &kernels::row_ops(kernels::detect()),
            &kernels::attention_ops(kernels::detect()),
            options.batch_invariant})) {
    machine_->pool = options.pool;
  }

  std::unique_ptr<Cache> make_cache(const CacheOptions& options) const override {
    const KvFormat natural = model_->weights.all_f32 ? KvFormat::f32 : KvFormat::f16;
    const KvFormat keys = options.keys.value_or(natural);
    const KvFormat values = options.values.value_or(natural);
    const int head_dim = model_->weights.spec.head_dim;
    if ((kernels::is_coded(keys) || kernels::is_coded(values)) &&
        head_dim > kernels::kLongestCodedHead) {
      throw UserError(
          "keys and values of head_dim {} cannot be kept in 8 or 4 bits, which ends at {}: use f16",
          head_dim,
          kernels::kLongestCodedHead);
    }
    auto& pools = pools_[{keys, values}];
    if (pools.empty()) {
      pools = make_kv_pools(model_->weights.spec, model_->kinds, keys, values);
    }
    return std::make_unique<NativeCache>(model_->kinds, pools, options);
  }

  mx::array forward(const Batch& batch) override {
    check(batch);
    StepPlan plan;
    size_t appended = 0;
    try {
      for (const Segment& segment : batch.segments) {
        plan_segment(plan, segment);
        ++appended;
      }
      plan.logit_rows = batch.logit_rows;
      plan.states = batch.states;
      return build(batch, std::move(plan));
    } catch (...) {  // out of memory: tokens that no step will compute must not count
      for (size_t i = 0; i < appended; ++i) {
        const Segment& segment = batch.segments[i];
        if (!segment.cache->trim(segment.rows)) {
          segment.cache->clear();
        }
      }
      throw;
    }
  }

  size_t weight_bytes() const override {
    return model_->weights.bytes;
  }

  std::vector<std::string> notes() const override {
    return model_->weights.notes;
  }

 private:
  // Everything that can be refused is refused before a cache is touched.
  void check(const Batch& batch) const {
    int64_t rows = 0;
    std::vector<Cache*> caches;
    for (const Segment& segment : batch.segments) {
      if (!dynamic_cast<NativeCache*>(segment.cache) || segment.rows < 1) {
        throw std::logic_error(
            "[NativeDecoder] a segment without rows, or with a cache of another decoder");
      }
      caches.push_back(segment.cache);
      rows += segment.rows;
    }
    std::sort(caches.begin(), caches.end());
    if (std::adjacent_find(caches.begin(), caches.end()) != caches.end()) {
      throw std::logic_error("[NativeDecoder] a cache twice in one batch");
    }
    if (rows == 0 || batch.tokens.ndim() != 1 || batch.tokens.shape(0) != rows) {
      throw std::logic_error("[NativeDecoder] segments do not add up to the tokens");
    }
    for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
      const int row = batch.logit_rows[i];
      if (row < 0 || row >= rows || (i > 0 && row <= batch.logit_rows[i - 1])) {
        throw std::logic_error("[NativeDecoder] logit rows must ascend within the batch");
      }
    }
    check_tokens(batch.tokens);
  }

  // Tokens that come from outside are known already; those of the last step are checked when it has
  // run.
  void check_tokens(const mx::array& tokens) const {
    if (tokens.status() == mx::array::Status::unscheduled || !tokens.is_available() ||
        tokens.dtype() != mx::int32) {
      return;
    }
    const auto* ids = tokens.data<int32_t>();
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int32_t id = ids[static_cast<int64_t>(i) * tokens.strides(0)];
      if (id < 0 || id >= model_->weights.spec.vocab_size) {
        throw UserError(
            "token {} is outside the model's vocabulary of {}",
            id,
            model_->weights.spec.vocab_size);
      }
    }
  }

  void plan_segment(StepPlan& plan, const Segment& given) const {
    auto& cache = *static_cast<NativeCache*>(given.cache);
    StepSegment segment;
    segment.first_row = plan.rows;
    segment.rows = given.rows;
    segment.by_row = !model_->batch_invariant && given.rows <= kFewRows;
    segment.position = cache.length();
    for (size_t k = 0; k < model_->kinds.windows.size(); ++k) {
      segment.spans.push_back(cache.store(k).span());
      segment.layouts.push_back(cache.store(k).layout());
    }
    const int64_t length = cache.length() + given.rows;
    for (const RopeSpec& rope : model_->weights.spec.ropes) {
      // As transformers does it: the whole step turns with the base of its last position.
      const bool stretched = rope.dynamic_factor != 0.0f && length > rope.original_length;
      segment.inv_freq.push_back(stretched ? inv_freq_at(rope, length) : std::vector<float>());
    }
    plan.segments.reserve(plan.segments.size() + 1);
    segment.blocks = cache.append(given.rows);  // from here on nothing throws
    plan.rows += given.rows;
    plan.segments.push_back(std::move(segment));
  }

  mx::array build(const Batch& batch, StepPlan plan) const {
    std::vector<mx::array> inputs{
        batch.tokens.dtype() == mx::int32 ? batch.tokens
                                          : mx::astype(batch.tokens, mx::int32, mx::Device::cpu)};
    for (const Segment& segment : batch.segments) {
      if (const auto& ticket = static_cast<NativeCache*>(segment.cache)->last_step) {
        inputs.push_back(*ticket);
      }
    }
    const auto rows = static_cast<int>(batch.logit_rows.size());
    const DecoderSpec& spec = model_->weights.spec;
    std::vector<mx::array> outputs = mx::array::make_arrays(
        {{rows, batch.states ? spec.hidden_size : spec.vocab_size}, {1}},
        {mx::float32, mx::bool_},
        std::make_shared<NativeStepPrimitive>(
            mx::default_stream(mx::Device::cpu), machine_, NativeStep(model_, std::move(plan))),
        inputs);
    for (const Segment& segment : batch.segments) {
      static_cast<NativeCache*>(segment.cache)->last_step = outputs[1];
    }
    return outputs[0];
  }

  std::shared_ptr<Machine> machine_;
  std::shared_ptr<const NativeModel> model_;
  using Pools = std::vector<std::shared_ptr<kernels::KvPool>>;
  mutable std::map<std::pair<KvFormat, KvFormat>, Pools> pools_;  // keys, values
};

}  // namespace

std::unique_ptr<Decoder> make_native_decoder(
    const DecoderSpec& spec, Weights& weights, const LoadOptions& options) {
  return std::make_unique<NativeDecoder>(spec, weights, options);
}

}  // namespace quince
