#include "weights/foreign_file.h"

#include <algorithm>
#include <array>

namespace quince {

namespace {

struct Kind {
  std::string_view begin;
  std::string_view what;
};

constexpr std::array kKinds{
    Kind{"version https://git-lfs", "a Git LFS pointer and not the file itself: run git lfs pull"},
    Kind{"<", "a web page, as servers send in place of a file: download the file itself"},
    Kind{
        std::string_view("PK\x03\x04"),
        "a zip archive, as PyTorch writes: get a safetensors or GGUF version of the model"},
    Kind{"GGUF", "a GGUF file: give it the ending .gguf"},
    // Little-endian magic numbers "ggml", "ggmf", "ggjt" and "ggla".
    Kind{"lmgg", "of a format that came before GGUF: get a GGUF version of the model"},
    Kind{"fmgg", "of a format that came before GGUF: get a GGUF version of the model"},
    Kind{"tjgg", "of a format that came before GGUF: get a GGUF version of the model"},
    Kind{"algg", "of a format that came before GGUF: get a GGUF version of the model"},
    Kind{"\x1f\x8b", "packed with gzip: unpack it first"},
    Kind{
        std::string_view("\0\0\0\0\0\0\0\0", 8),
        "nothing but zeros at its beginning: download it again"},
};

}  // namespace

std::string_view foreign_file(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Kind& kind : kKinds) {
    if (text.starts_with(kind.begin)) {
      return kind.what;
    }
  }
  // Eight bytes of length, then a JSON object that opens with a name.
  if (text.size() > 10 && text.substr(8).starts_with("{\"") && text[7] == '\0') {
    return "a safetensors file: name the directory that it lies in";
  }
  return "";
}

}  // namespace quince
