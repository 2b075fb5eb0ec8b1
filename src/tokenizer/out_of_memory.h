// Where memory runs out in the Rust library no exception can be thrown.
#pragma once

namespace quince {

// handler is called then, on whatever thread it is; it must end the program.
void on_bridge_out_of_memory(void (*handler)());

}  // namespace quince
