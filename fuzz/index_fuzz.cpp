// Any text as model.safetensors.index.json. What is accepted must be a plain relative name.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "weights/safetensors.h"

using namespace quince;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const auto& [tensor, shard] : parse_safetensors_index(text, "input")) {
      const auto path = (std::filesystem::path("/model") / shard).lexically_normal();
      if (!path.string().starts_with("/model/") || shard.find('\0') != std::string::npos) {
        std::abort();
      }
    }
  } catch (const UserError&) {
  }
  return 0;
}
