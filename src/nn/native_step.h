// One forward pass of the native decoder: all layers in one job of the thread pool. It is planned
// on the engine thread when the graph is built and run later, once, on MLX's CPU stream thread.
// Steps of one decoder run one after another and share a workspace.
//
// A step over a single row (decoding one sequence) lets every member of the team do the small
// things (norms, activations, preparing a matrix's input) for itself: that is cheaper than waiting
// for another. With more rows each member takes a share of them.
//
// Attention of segments of few rows is computed row by row, as if each row were a step of its own:
// what a row gives does not depend on whether it was run together with others of its sequence, so
// drafted tokens get the logits that sampled ones would have got. A batch-invariant model has no
// such segments, and one kind of prepared rows for every number of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/anonymous_memory.h"
#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/kv_store.h"
#include "kernels/matmul.h"
#include "nn/native_cache.h"
#include "nn/native_weights.h"

namespace quince {

// What a decoder's steps share; immutable.
struct NativeModel {
  NativeWeights weights;
  LayerKinds kinds;
  const kernels::RowOps* row_ops = nullptr;
  const kernels::AttentionOps* attention_ops = nullptr;
  bool batch_invariant = false;  // see LoadOptions
};

// Consecutive rows of a step that belong to one sequence.
struct StepSegment {
  int first_row = 0;
  int rows = 0;
  int64_t position = 0;                                          // of the first row
  std::vector<std::shared_ptr<const kernels::KvBlocks>> blocks;  // by kind
  std::vector<kernels::KvSpan> spans;                            // by kind
  std::vector<kernels::KvLayout> layouts;                        // by kind
  std::vector<std::vector<float>> inv_freq;  // by rope: this sequence's own (dynamic), or empty

  bool by_row = false;  // attention is computed for each row alone
  bool alone() const {  // its only row stores its key and value itself
    return by_row && rows == 1;
  }
  // Blocks that end with the one of the row's own position.
  int blocks_to(size_t kind, int row) const;
};

struct StepPlan {
  int rows = 0;
  std::vector<StepSegment> segments;
  std::vector<int> logit_rows;  // ascending
  bool states = false;          // see Batch
};

// Memory that grows as needed and is kept between steps. One step at a time.
class Workspace {
 public:
  // At least `bytes`, 64-byte aligned; what it held before is lost. Throws std::bad_alloc.
  std::byte* reserve(size_t bytes);

 private:
  std::optional<AnonymousMemory> memory_;
};

// A piece of attention work: one key/value head, and either a stretch of blocks for a single row or
// a range of rows over all blocks.
struct AttentionUnit {
  int segment = 0;
  int head = 0;
  int first_row = 0;  // of the step
  int rows = 1;
  bool single = true;   // one row
  int first_block = 0;  // single: the blocks [first, last)
  int last_block = 0;
  bool stores = false;   // single, alone in its segment: this part writes the row's key and value
  int64_t partial = -1;  // single: where the part's result goes, in floats
};

class NativeStep {
 public:
  NativeStep(std::shared_ptr<const NativeModel> model, StepPlan plan);

  // tokens [rows], `stride` apart; logits [logit_rows, vocab_size],
  // or states [logit_rows, hidden_size].
  void run(
      ThreadPool& pool,
      Workspace& workspace,
      const int32_t* tokens,
      int64_t stride,
      float* logits) const;

  const StepPlan& plan() const {
    return plan_;
  }

 private:
  friend class StepRun;
  std::vector<AttentionUnit> attention_units(size_t kind, bool only_logit_rows) const;
  void add_row_units(size_t kind, int s, int r, std::vector<AttentionUnit>& units) const;
  std::vector<AttentionUnit> store_units() const;
  bool wanted(int first_row, int rows) const;

  std::shared_ptr<const NativeModel> model_;
  StepPlan plan_;
  std::vector<std::vector<AttentionUnit>> units_;  // by kind
  std::vector<AttentionUnit> last_units_;          // of the last layer
  std::vector<AttentionUnit> store_units_;         // keys and values of segments of many rows
  std::vector<int> row_segment_;                   // [rows]
  int64_t partial_floats_ = 0;
  std::vector<std::vector<int64_t>> row_partials_;  // by kind: [rows] place of a row's partials
};

}  // namespace quince
