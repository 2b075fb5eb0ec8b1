// The page at /: a chat in a browser. Its files are part of the program; they ask nothing of any
// other server, and nothing in them becomes code but what is in these files.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace quince::server {

struct PageFile {
  std::string_view name;  // "index.html"
  std::string_view content_type;
  std::string_view bytes;
};

std::span<const PageFile> page_files();

}  // namespace quince::server
