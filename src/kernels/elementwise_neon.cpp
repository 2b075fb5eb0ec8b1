#include "kernels/elementwise_impl.h"
#include "kernels/elementwise_tables.h"

namespace quince::kernels {

const RowOps& row_ops_neon() {
  return kRowOps;
}

}  // namespace quince::kernels
