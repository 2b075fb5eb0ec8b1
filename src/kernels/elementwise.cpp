// Scalar code, and the choice of a table.
#include "kernels/elementwise.h"

#include "kernels/elementwise_impl.h"
#include "kernels/elementwise_tables.h"

namespace quince::kernels {

const RowOps& row_ops(CpuPath path) {
  switch (path) {
#if defined(__x86_64__)
    case CpuPath::avx2:
      return row_ops_avx2();
    case CpuPath::avx512:
    case CpuPath::amx:
      return row_ops_avx512();
#elif defined(__aarch64__)
    case CpuPath::neon:
    case CpuPath::i8mm:
      return row_ops_neon();
#endif
    default:
      return kRowOps;
  }
}

}  // namespace quince::kernels
