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

int rows_at_once(int group, int rows) {
  // Enough query rows to be worth converting a block for, few enough to stay in the cache; short
  // segments are cut finer, so that more than one thread finds work.
  const int fewest = std::max(16, (96 / group + 15) / 16 * 16);
  const int most = std::clamp(256 / group, 16, 64);
  return std::clamp((rows / 4 + 15) / 16 * 16, std::min(fewest, most), most);
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
