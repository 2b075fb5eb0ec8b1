// What a file is that should have been a model file: the usual mistakes, named with the remedy.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace quince {

// "a Git LFS pointer and not the file itself: run git lfs pull"; empty for bytes that tell nothing.
std::string_view foreign_file(std::span<const std::byte> bytes);

}  // namespace quince
