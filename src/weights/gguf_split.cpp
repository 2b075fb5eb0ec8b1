// Split GGUF sets: x-00001-of-00003.gguf and its sisters. Keys split.no (from 0), split.count and
// split.tensors.count tell each part its place.
#include <charconv>

#include "base/error.h"
#include "weights/gguf.h"

namespace quince {

namespace fs = std::filesystem;

namespace {

std::optional<int> five_digits(std::string_view text) {
  int value = 0;
  if (text.size() != 5) {
    return std::nullopt;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    return std::nullopt;
  }
  return value;
}

void check_part(const GgufFile& file, int index, int64_t count) {
  const auto its_count = file.get_int("split.count").value_or(0);
  const auto its_index = file.get_int("split.no").value_or(-1);
  if (its_count != count || its_index != index) {
    throw UserError(
        "{}: says that it is part {} of {}, but its name and sisters make it part {} of {}: files "
        "of "
        "different sets are mixed",
        file.source(),
        its_index + 1,
        its_count,
        index + 1,
        count);
  }
}

}  // namespace

std::optional<GgufPartName> gguf_part_name(std::string_view name) {
  constexpr std::string_view kEnd = ".gguf";
  constexpr size_t kTail = std::string_view("-00001-of-00003.gguf").size();
  if (!name.ends_with(kEnd) || name.size() <= kTail) {
    return std::nullopt;
  }
  const std::string_view tail = name.substr(name.size() - kTail);
  const auto part = five_digits(tail.substr(1, 5));
  const auto count = five_digits(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !part || !count || *part < 1 ||
      *part > *count) {
    return std::nullopt;
  }
  return GgufPartName{std::string(name.substr(0, name.size() - kTail)), *part, *count};
}

std::vector<GgufFile> open_gguf_set(const fs::path& path) {
  std::vector<GgufFile> parts;
  GgufFile named = GgufFile::open(path);
  const int64_t count = named.get_int("split.count").value_or(0);
  if (count <= 1) {
    parts.push_back(std::move(named));
    return parts;
  }
  const auto part_name = gguf_part_name(path.filename().string());
  if (!part_name || part_name->count != count) {
    throw UserError(
        "{}: is one part of a set of {}, but its name does not end in -00001-of-{:05}.gguf: give "
        "the "
        "files their original names",
        path.string(),
        count,
        count);
  }
  uint64_t tensors = 0;
  for (int i = 0; i < count; ++i) {
    const fs::path file =
        path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", part_name->stem, i + 1, count);
    if (i + 1 == part_name->part) {
      parts.push_back(std::move(named));
    } else {
      if (!fs::exists(file)) {
        throw UserError(
            "{}: part {} of {} is missing; all parts must lie in one folder",
            file.string(),
            i + 1,
            count);
      }
      parts.push_back(GgufFile::open(file));
    }
    check_part(parts.back(), i, count);
    tensors += parts.back().tensors().size();
  }
  const auto want = parts.front().get_int("split.tensors.count");
  if (want && static_cast<uint64_t>(*want) != tensors) {
    throw UserError(
        "{}: the {} parts hold {} tensors, split.tensors.count says {}",
        path.string(),
        count,
        tensors,
        *want);
  }
  return parts;
}

}  // namespace quince
