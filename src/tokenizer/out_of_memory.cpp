#include "tokenizer/out_of_memory.h"

#include <quince_bridge.h>

namespace quince {

void on_bridge_out_of_memory(void (*handler)()) {
  quince_bridge_on_out_of_memory(handler);
}

}  // namespace quince
