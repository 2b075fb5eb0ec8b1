#include "engine/sampling/constraint_graph.h"

#include <algorithm>
#include <stdexcept>

#include <mlx/allocator.h>
#include <mlx/backend/cpu/encoder.h>
#include <mlx/ops.h>
#include <mlx/primitives.h>

namespace quince {

namespace mx = mlx::core;

namespace {

// The bits of what a constraint allows at a position, as a node of the graph. Its input, when there
// is one, is the token before, which the constraint is told. Where the answer has ended, or the
// constraint failed, token 0 is allowed: nobody will look at it.
class ConstraintBits : public mx::Primitive {
 public:
  ConstraintBits(
      mx::Stream stream,
      std::shared_ptr<ConstraintState> constraint,
      int64_t position,
      int call,
      std::shared_ptr<ConstraintFailures> failures)
      : Primitive(stream),
        constraint_(std::move(constraint)),
        position_(position),
        call_(call),
        failures_(std::move(failures)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    mx::array& output = outputs[0];
    output.set_data(mx::allocator::malloc(output.nbytes()));
    auto& encoder = mx::cpu::get_command_encoder(stream());
    const int32_t* before = nullptr;
    if (!inputs.empty()) {
      encoder.set_input_array(inputs[0]);
      before = inputs[0].data<int32_t>();
    }
    encoder.set_output_array(output);
    encoder.dispatch([constraint = constraint_,
                      failures = failures_,
                      position = position_,
                      call = call_,
                      before,
                      bits = output.data<uint32_t>(),
                      words = output.size()] {
      std::fill_n(bits, words, 0);
      try {
        if (before != nullptr) {
          constraint->accept(position - 1, *before);
        }
        const ConstraintState::Next next = constraint->next(position);
        if (next.bits) {
          std::copy_n(next.bits->begin(), std::min(words, next.bits->size()), bits);
        } else {
          const auto token = static_cast<uint32_t>(next.token.value_or(0));
          bits[token / 32] = uint32_t{1} << (token % 32);
        }
      } catch (...) {
        failures->set(call);
        bits[0] = 1;
      }
    });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error("[ConstraintBits] runs on the CPU only");
  }

  DEFINE_NAME(ConstraintBits)

 private:
  std::shared_ptr<ConstraintState> constraint_;
  int64_t position_;
  int call_;
  std::shared_ptr<ConstraintFailures> failures_;
};

}  // namespace

std::vector<int32_t> ConstraintGraph::skipped(const SampleRow& row) {
  std::vector<int32_t> tokens;
  if (row.position > position_) {
    tokens = row.constraint->decided(position_);
    tokens.resize(static_cast<size_t>(row.position - position_));
    before_.reset();  // decided like all before this one
  }
  position_ = row.position + 1;
  return tokens;
}

mx::array ConstraintGraph::words(const SampleRow& row, int vocabulary) {
  std::vector<mx::array> inputs;
  if (before_) {
    inputs.push_back(*before_);
  }
  return mx::array(
      {(vocabulary + 31) / 32},
      mx::uint32,
      std::make_shared<ConstraintBits>(
          mx::default_stream(mx::Device::cpu), row.constraint, row.position, ++calls_, failures_),
      std::move(inputs));
}

}  // namespace quince
