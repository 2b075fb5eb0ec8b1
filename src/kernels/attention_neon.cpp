#include "kernels/attention_impl.h"

namespace quince::kernels {

const AttentionOps& attention_ops_neon() {
  return kAttentionOps;
}

}  // namespace quince::kernels
