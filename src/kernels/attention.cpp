// Scalar code, and the choice of a table.
#include "kernels/attention.h"

#include <algorithm>

#include "kernels/attention_impl.h"

namespace quince::kernels {

RowParts row_parts(int block_count) {
  constexpr int kFewest = 4;  // blocks a part: less is not worth a merge
  constexpr int kMost = 16;   // parts a row
  RowParts parts;
  parts.blocks = std::max(kFewest, (block_count + kMost - 1) / kMost);
  parts.count = (block_count + parts.blocks - 1) / parts.blocks;
  return parts;
}

int rows_at_once(int group) {
  return std::clamp(256 / group, 8, 64);
}

const AttentionOps& attention_ops(CpuPath path) {
  switch (path) {
#if defined(__x86_64__)
    case CpuPath::avx2:
      return attention_ops_avx2();
    case CpuPath::avx512:
      return attention_ops_avx512();
    case CpuPath::amx:
      return attention_ops_amx();
#elif defined(__aarch64__)
    case CpuPath::neon:
    case CpuPath::i8mm:
      return attention_ops_neon();
#endif
    default:
      return kAttentionOps;
  }
}

}  // namespace quince::kernels
