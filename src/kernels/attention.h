// Attention of query rows of one sequence over its key and value blocks, for one layer and one
// key/value head with all query heads that share it. f32 arithmetic, online softmax (running
// maximum and sum, so nothing of the size of the context is kept). One table of functions per
// instruction set; all run on the calling thread. Heads, sequences, row blocks and, for single
// rows, stretches of positions are independent pieces of work for the caller to share out. No MLX.
//
// The split of a row's positions into parts depends on its own length only, so a row's result does
// not depend on what else is computed, nor on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu.h"
#include "kernels/kv_store.h"

namespace quince::kernels {

struct AttentionHead {
  const KvBlock* blocks = nullptr;  // ascending
  int block_count = 0;
  size_t key_offset = 0;  // in a block, KvLayout::key_offset
  size_t value_offset = 0;
  KvType key_type = KvType::f16;
  KvType value_type = KvType::f16;
  int head_dim = 0;
  int value_width = 0;  // KvLayout::value_width()
  int group = 1;        // query heads of this key/value head
  KvSpan span;
};

// A part of a row's result, waiting to be merged: [group][value_width] weighted values, then
// [group] maxima, then [group] sums of e^(score - maximum).
inline int64_t partial_size(const AttentionHead& head) {
  return static_cast<int64_t>(head.group) * (head.value_width + 2);
}

// How single rows are cut: parts of `blocks` blocks each.
struct RowParts {
  int count = 0;
  int blocks = 0;
};
RowParts row_parts(int block_count);

struct AttentionOps {
  // Puts rows [slot, slot + rows) of one head into a block. k and v: f32 rows of head_dim, `stride`
  // floats apart; keys, values: the head's place in the block.
  void (*store)(
      const AttentionHead& head,
      std::byte* keys,
      std::byte* values,
      int slot,
      int rows,
      const float* k,
      const float* v,
      int64_t stride);

  // One row at `position` over blocks [first, last). q: [group][head_dim], already scaled.
  void (*attend_row)(
      const AttentionHead& head,
      const float* q,
      int64_t position,
      int first,
      int last,
      float* partial);

  // Merges the parts of a row, one behind the other, into out [group][head_dim].
  void (*merge)(const AttentionHead& head, const float* partials, int parts, float* out);

  // Rows at first_position, first_position + 1, ... over all blocks. q and out: row r, query head g
  // at r * stride + g * head_dim. workspace: 64-byte aligned, rows_workspace() bytes, of this
  // thread.
  void (*attend_rows)(
      const AttentionHead& head,
      const float* q,
      int64_t q_stride,
      int rows,
      int64_t first_position,
      float* out,
      int64_t out_stride,
      std::byte* workspace);
  size_t (*rows_workspace)(const AttentionHead& head, int rows);
};

// The best table that the path allows.
const AttentionOps& attention_ops(CpuPath path);

// Rows that attend_rows is best given at once, of a segment of `rows`.
int rows_at_once(int group, int rows);

}  // namespace quince::kernels
