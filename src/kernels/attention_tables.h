// The tables behind attention_ops(), one per file. Private to attention*.cpp.
#pragma once

#include "kernels/attention.h"

namespace quince::kernels {

const AttentionOps& attention_ops_avx2();
const AttentionOps& attention_ops_avx512();
const AttentionOps& attention_ops_amx();
const AttentionOps& attention_ops_neon();

// What attend_rows works through between two looks at the running maximum.
constexpr int kSpanBlocks = 4;
constexpr int kSpan = kSpanBlocks * kKvBlock;

}  // namespace quince::kernels
