#include "engine/sampling/sampler.h"

#include <random>
#include <vector>

#include <mlx/allocator.h>
#include <mlx/backend/cpu/encoder.h>
#include <mlx/ops.h>
#include <mlx/primitives.h>
#include <mlx/random.h>

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

// CpuSampler as a node of the graph.
class SampleRow : public mx::Primitive {
 public:
  SampleRow(mx::Stream stream, std::shared_ptr<CpuSampler> sampler)
      : Primitive(stream), sampler_(std::move(sampler)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (mx::array& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
    }
    auto& encoder = mx::cpu::get_command_encoder(stream());
    encoder.set_input_array(inputs[0]);
    encoder.set_output_array(outputs[0]);
    encoder.set_output_array(outputs[1]);
    encoder.dispatch([sampler = sampler_,
                      logits = inputs[0].data<float>(),
                      size = static_cast<size_t>(inputs[0].shape(-1)),
                      id = outputs[0].data<int32_t>(),
                      logprob = outputs[1].data<float>()] {
      const SampledToken token = sampler->sample({logits, size});
      *id = token.id;
      *logprob = token.logprob;
    });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error("[SampleRow] runs on the CPU only");
  }

  DEFINE_NAME(SampleRow)

 private:
  std::shared_ptr<CpuSampler> sampler_;
};

class NativeSampler : public Sampler {
 public:
  NativeSampler(const SamplingParams& params, std::span<const int32_t> prompt)
      : sampler_(std::make_shared<CpuSampler>(params, seed_of(params))) {
    sampler_->observe(prompt);
  }

  std::pair<mx::array, mx::array> sample(const mx::array& logits) override {
    auto outputs = mx::array::make_arrays(
        {{1}, {1}},
        {mx::int32, mx::float32},
        std::make_shared<SampleRow>(mx::default_stream(mx::Device::cpu), sampler_),
        {mx::contiguous(logits)});
    return {outputs[0], outputs[1]};
  }

 private:
  std::shared_ptr<CpuSampler> sampler_;
};

// The same steps in the same order out of MLX operations.
class ComposedSampler : public Sampler {
 public:
  ComposedSampler(const SamplingParams& params, std::span<const int32_t> prompt)
      : params_(params), seed_(seed_of(params)) {
    if (params_.repetition_penalty != 1.0f) {
      const auto window = static_cast<size_t>(params_.repetition_window);
      const bool all = params_.repetition_window < 0 || prompt.size() <= window;
      const auto recent = all ? prompt : prompt.last(window);
      recent_ = mx::array(recent.begin(), {static_cast<int>(recent.size())}, mx::int32);
    }
    if (!params_.logit_bias.empty()) {
      std::vector<int32_t> ids;
      std::vector<float> values;
      for (const auto& [id, value] : params_.logit_bias) {
        ids.push_back(id);
        values.push_back(value);
      }
      const int n = static_cast<int>(ids.size());
      bias_ids_ = mx::array(ids.begin(), {n}, mx::int32);
      bias_values_ = mx::array(values.begin(), {n}, mx::float32);
    }
  }

  std::pair<mx::array, mx::array> sample(const mx::array& logits) override {
    mx::array row = adjusted(mx::reshape(logits, {-1}));
    mx::array token = mx::array(0);
    if (params_.temperature == 0.0f || params_.top_k == 1) {
      token = mx::astype(mx::argmax(row, 0, true), mx::int32);
    } else {
      const auto key = mx::random::key(seed_ + step_);
      row = mx::divide(filtered(row), mx::array(params_.temperature));
      token = mx::reshape(mx::astype(mx::random::categorical(row, -1, key), mx::int32), {1});
    }
    ++step_;
    if (recent_) {
      remember(token);
    }
    mx::array logprob = mx::array({std::numeric_limits<float>::quiet_NaN()});
    if (params_.logprobs) {
      const mx::array raw = mx::reshape(logits, {-1});
      logprob = mx::subtract(mx::take(raw, token, 0), mx::logsumexp(raw, true));
    }
    return {token, logprob};
  }

 private:
  mx::array adjusted(mx::array row) const {
    if (bias_ids_) {
      row = mx::scatter_add_axis(row, *bias_ids_, *bias_values_, 0);
    }
    if (recent_ && recent_->size() > 0) {
      // Equal ids write equal values, so that duplicates in the window do no harm.
      const mx::array seen = mx::take(row, *recent_, 0);
      const mx::array penalty = mx::array(params_.repetition_penalty);
      const mx::array changed = mx::where(
          mx::greater(seen, mx::array(0.0f)),
          mx::divide(seen, penalty),
          mx::multiply(seen, penalty));
      row = mx::put_along_axis(row, *recent_, changed, 0);
    }
    return row;
  }

  // Everything that top-k, min-p and top-p refuse becomes -inf.
  mx::array filtered(mx::array row) const {
    const mx::array none = mx::array(-std::numeric_limits<float>::infinity());
    const int size = row.shape(0);
    if (params_.top_k > 0 && params_.top_k < size) {
      const mx::array kth = mx::slice(
          mx::partition(row, size - params_.top_k, 0),
          {size - params_.top_k},
          {size - params_.top_k + 1});
      row = mx::where(mx::less(row, kth), none, row);
    }
    if (params_.min_p > 0.0f) {
      const mx::array lowest = mx::add(mx::max(row, true), mx::array(std::log(params_.min_p)));
      row = mx::where(mx::less(row, lowest), none, row);
    }
    if (params_.top_p < 1.0f) {
      const mx::array order = mx::argsort(mx::negative(row), 0);
      const mx::array probabilities = mx::softmax(mx::take(row, order, 0), 0, true);
      const mx::array before = mx::subtract(mx::cumsum(probabilities, 0), probabilities);
      const mx::array keep = mx::less(before, mx::array(params_.top_p));
      const mx::array mask = mx::put_along_axis(mx::zeros({size}, mx::bool_), order, keep, 0);
      row = mx::where(mask, row, none);
    }
    return row;
  }

  void remember(const mx::array& token) {
    mx::array window = mx::concatenate({*recent_, token}, 0);
    const int size = window.shape(0);
    if (params_.repetition_window >= 0 && size > params_.repetition_window) {
      window = mx::slice(window, {size - params_.repetition_window}, {size});
    }
    recent_ = window;
  }

  SamplingParams params_;
  uint64_t seed_;
  uint64_t step_ = 0;
  std::optional<mx::array> recent_;  // [window] int32
  std::optional<mx::array> bias_ids_;
  std::optional<mx::array> bias_values_;
};

}  // namespace

std::unique_ptr<Sampler> make_sampler(
    const SamplingParams& params, std::span<const int32_t> prompt, mx::Device device) {
  if (device == mx::Device::cpu) {
    return std::make_unique<NativeSampler>(params, prompt);
  }
  return std::make_unique<ComposedSampler>(params, prompt);
}

}  // namespace quince
