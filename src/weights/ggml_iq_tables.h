// The code books of GGML's IQ formats: fixed lists of short vectors. One 16-bit word a vector,
// element 0 in the lowest bits. IQ1, IQ2: 8 elements of 2 bits; IQ3: 4 elements of 3 bits. The bits
// are an index into the levels of the format (ggml_iq.cpp).
#pragma once

#include <cstdint>

namespace quince {

extern const uint16_t kIq2XxsBook[256];
extern const uint16_t kIq2XsBook[512];
extern const uint16_t kIq2SBook[1024];
extern const uint16_t kIq3XxsBook[256];
extern const uint16_t kIq3SBook[512];
extern const uint16_t kIq1Book[2048];

}  // namespace quince
