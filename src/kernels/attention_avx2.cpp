#include "kernels/attention_impl.h"

namespace quince::kernels {

const AttentionOps& attention_ops_avx2() {
  return kAttentionOps;
}

}  // namespace quince::kernels
