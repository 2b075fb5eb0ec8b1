// The work on one tensor: reads slices of rows, turns them into the output's form, and hands the
// bytes on in the order of the output's tensors.
#pragma once

#include <functional>
#include <span>

#include "base/thread_pool.h"
#include "convert/plan.h"

namespace quince {

// Takes the bytes of job.outputs one after another, each front to back.
using ByteSink = std::function<void(std::span<const std::byte>)>;
// Called between slices with the share of this job that is done; may throw to stop.
using StepHook = std::function<void(double)>;

// Memory: about three slices of kSliceElements f32 numbers a thread, and all scales and biases of
// the one matrix.
void encode(const ConvertJob& job, ThreadPool& pool, const ByteSink& sink, const StepHook& step);

}  // namespace quince
