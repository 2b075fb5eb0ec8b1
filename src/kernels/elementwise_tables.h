// The tables behind row_ops(), one per file. Private to elementwise*.cpp.
#pragma once

#include "kernels/elementwise.h"

namespace quince::kernels {

const RowOps& row_ops_avx2();
const RowOps& row_ops_avx512();
const RowOps& row_ops_neon();

}  // namespace quince::kernels
