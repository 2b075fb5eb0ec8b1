// Codes of 16 rows of a model file to the bit planes of a packed block (packed_layout.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed_layout.h"

namespace quince::kernels {

// Packs all chunks of a block. rows: 16 pointers to the stored rows; rows that do not exist may
// repeat others (their scales are zero).
using PackCodes = void (*)(const std::byte* const* rows, int64_t chunks, std::byte* block);

PackCodes pack_codes(TensorType type);  // null when the type is not kept
PackCodes pack_mlx_codes(int bits);

// One chunk of 8-bit codes, [16 rows][32].
void pack_bytes(const uint8_t* codes, std::byte* chunk);

}  // namespace quince::kernels
