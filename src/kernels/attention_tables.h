// The tables behind attention_ops(), one per file. Private to attention*.cpp.
#pragma once

#include "kernels/attention.h"

namespace quince::kernels {

const AttentionOps& attention_ops_avx2();
const AttentionOps& attention_ops_avx512();
const AttentionOps& attention_ops_amx();
const AttentionOps& attention_ops_neon();

// What attend_rows works through between two looks at the running maximum: blocks of one stretch of
// positions, always the same, so that no row's sums depend on which others it is computed with.
constexpr int kSpanBlocks = 4;
constexpr int kSpan = kSpanBlocks * kKvBlock;

static inline int span_end(const AttentionHead& head, int block) {
  const int64_t span = head.blocks[block].start / kSpan;
  int end = block + 1;
  while (end < head.block_count && end - block < kSpanBlocks &&
         head.blocks[end].start / kSpan == span) {
    ++end;
  }
  return end;
}

}  // namespace quince::kernels
