#include "base/anonymous_memory.h"

#include <cstdint>
#include <new>
#include <utility>

#include <gtest/gtest.h>

namespace quince {
namespace {

TEST(AnonymousMemory, IsZeroedWritableAndAligned) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, AnonymousMemory::kHugePage * 2 + 5}) {
    AnonymousMemory memory(bytes, true);
    EXPECT_EQ(memory.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % AnonymousMemory::kHugePage, 0u);
    for (size_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(memory.data()[i], std::byte{0});
      memory.data()[i] = std::byte{1};
    }
  }
}

TEST(AnonymousMemory, MovesWithItsContents) {
  AnonymousMemory from(100, false);
  from.data()[99] = std::byte{7};
  AnonymousMemory to = std::move(from);
  EXPECT_EQ(to.data()[99], std::byte{7});
  to = AnonymousMemory(50, true);
  EXPECT_EQ(to.size(), 50u);
  EXPECT_EQ(to.data()[49], std::byte{0});
}

TEST(AnonymousMemory, TooMuchIsBadAlloc) {
  EXPECT_THROW(AnonymousMemory(size_t{1} << 60, false), std::bad_alloc);
}

}  // namespace
}  // namespace quince
