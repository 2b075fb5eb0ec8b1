// Which safetensors files make up a model directory.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "weights/json_file.h"
#include "weights/safetensors.h"

namespace quince {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr size_t kMaxIndex = 256u << 20;
constexpr size_t kMaxName = 255;
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";

std::string visible(std::string_view name) {
  std::string text;
  for (const char c : name.substr(0, 80)) {
    if (static_cast<unsigned char>(c) < 0x20) {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return name.size() > 80 ? text + "..." : text;
}

// A shard name must be a plain relative path that cannot leave the directory.
void check_shard_name(std::string_view name, std::string_view source) {
  const auto refuse = [&](std::string_view why) {
    throw UserError("{}: shard name \"{}\" {}", source, visible(name), why);
  };
  if (name.empty()) {
    refuse("is empty");
  }
  if (name.size() > kMaxName) {
    refuse(fmt::format("has {} characters, at most {} are allowed", name.size(), kMaxName));
  }
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == '\\' || c == ':') {
      refuse("has a character that is not allowed in a shard name");
    }
  }
  size_t begin = 0;
  while (begin <= name.size()) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") {
      refuse("does not stay inside the model's directory");
    }
    begin = end + 1;
  }
  if (!name.ends_with(".safetensors")) {
    refuse("is not a .safetensors file");
  }
}

void append(SafetensorsContent& to, SafetensorsContent from) {
  std::move(from.tensors.begin(), from.tensors.end(), std::back_inserter(to.tensors));
  for (auto& [key, value] : from.metadata) {
    to.metadata[key] = value;
  }
}

void check_unique_names(const SafetensorsContent& content, const fs::path& directory) {
  std::map<std::string_view, const TensorView*> seen;
  for (const TensorView& tensor : content.tensors) {
    const auto [at, is_new] = seen.emplace(tensor.name, &tensor);
    if (!is_new) {
      throw UserError(
          "{}: tensor {} is in two files: {} and {}",
          directory.string(),
          tensor.name,
          at->second->file->path().filename().string(),
          tensor.file->path().filename().string());
    }
  }
}

using Names = std::set<std::string, std::less<>>;
using Shards = std::map<std::string, Names, std::less<>>;  // file -> tensors

Shards read_index(const std::string& text, const std::string& source) {
  Shards shards;
  for (const auto& [tensor, shard] : parse_safetensors_index(text, source)) {
    shards[shard].insert(tensor);
  }
  return shards;
}

// An index that stayed behind when its shards became one file says nothing about that file.
bool is_stale(const Shards& shards, const fs::path& directory) {
  const auto exists = [&](const auto& shard) { return fs::exists(directory / shard.first); };
  return fs::exists(directory / kSingleName) && !shards.contains(kSingleName) &&
         !std::all_of(shards.begin(), shards.end(), exists);
}

// The tensors of one shard, less old copies of those that the index has elsewhere.
SafetensorsContent open_shard(
    const fs::path& path, const Names& tensors, const Names& indexed, const std::string& source) {
  SafetensorsContent content = open_safetensors(path);
  std::erase_if(content.tensors, [&](const TensorView& tensor) {
    return !tensors.contains(tensor.name) && indexed.contains(tensor.name);
  });
  Names there;
  for (const TensorView& tensor : content.tensors) {
    there.insert(tensor.name);
  }
  for (const std::string& name : tensors) {
    if (!there.contains(name)) {
      throw UserError(
          "{}: tensor {} is not in {}, where the index has it",
          source,
          name,
          path.filename().string());
    }
  }
  return content;
}

SafetensorsContent open_shards(const fs::path& directory, const Shards& shards) {
  Names indexed;
  for (const auto& [shard, tensors] : shards) {
    if (!fs::exists(directory / shard)) {
      throw UserError(
          "{}: the shard {} is missing (it holds {} tensors); download it again",
          directory.string(),
          shard,
          tensors.size());
    }
    indexed.insert(tensors.begin(), tensors.end());
  }
  SafetensorsContent all;
  for (const auto& [shard, tensors] : shards) {
    append(all, open_shard(directory / shard, tensors, indexed, (directory / kIndexName).string()));
  }
  return all;
}

// model-00001-of-00003.safetensors and the like; nothing for other names.
struct PartName {
  std::string stem;
  int part;
  int count;
};
std::optional<PartName> part_name(const std::string& name) {
  constexpr std::string_view kEnd = ".safetensors";
  const size_t of = name.rfind("-of-");
  if (!name.ends_with(kEnd) || of == std::string::npos || of < 6) {
    return std::nullopt;
  }
  const std::string part = name.substr(of - 5, 5);
  const std::string count = name.substr(of + 4, name.size() - kEnd.size() - of - 4);
  const auto digits = [](const std::string& s) {
    return s.size() == 5 && s.find_first_not_of("0123456789") == std::string::npos;
  };
  if (!digits(part) || !digits(count) || name[of - 6] != '-') {
    return std::nullopt;
  }
  return PartName{name.substr(0, of - 6), std::stoi(part), std::stoi(count)};
}

// No index: all files must be there by their own numbering.
void check_parts(const std::vector<std::string>& names, const fs::path& directory) {
  std::map<std::pair<std::string, int>, std::set<int>> sets;
  for (const std::string& name : names) {
    if (const auto part = part_name(name)) {
      sets[{part->stem, part->count}].insert(part->part);
    }
  }
  for (const auto& [set, parts] : sets) {
    for (int i = 1; i <= set.second; ++i) {
      if (!parts.count(i)) {
        throw UserError(
            "{}: {}-{:05}-of-{:05}.safetensors is missing; download it again",
            directory.string(),
            set.first,
            i,
            set.second);
      }
    }
  }
}

std::vector<std::string> safetensors_names(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") && !name.starts_with('.')) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Neither one file nor an index: whatever is called model, else all there is.
SafetensorsContent open_unlisted(const fs::path& directory) {
  std::vector<std::string> names = safetensors_names(directory);
  const auto is_model = [](const std::string& name) { return name.starts_with("model"); };
  if (names.size() > 1 && std::any_of(names.begin(), names.end(), is_model)) {
    std::erase_if(names, [&](const std::string& name) { return !is_model(name); });
  }
  if (names.empty()) {
    const bool torch = fs::exists(directory / "pytorch_model.bin") ||
                       fs::exists(directory / "pytorch_model.bin.index.json");
    throw UserError(
        "{}: holds no .safetensors file{}",
        directory.string(),
        torch ? ", only PyTorch .bin files, which are not read: get a safetensors version of the "
                "model"
              : "");
  }
  check_parts(names, directory);
  SafetensorsContent content;
  for (const std::string& name : names) {
    append(content, open_safetensors(directory / name));
  }
  return content;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_safetensors_index(
    std::string_view text, std::string_view source) {
  const json::object index =
      parse_json_object(text, source, {.max_depth = 16, .unique_keys = true});
  const json::value* map = index.if_contains("weight_map");
  if (!map || !map->is_object()) {
    throw UserError("{}: \"weight_map\" is missing or not an object", source);
  }
  std::vector<std::pair<std::string, std::string>> result;
  result.reserve(map->get_object().size());
  for (const auto& [tensor, shard] : map->get_object()) {
    if (!shard.is_string()) {
      throw UserError(
          "{}: weight_map has {} for tensor {}, want a file name",
          source,
          json::serialize(shard).substr(0, 60),
          std::string_view(tensor));
    }
    check_shard_name(shard.get_string(), source);
    result.emplace_back(tensor, shard.get_string());
  }
  if (result.empty()) {
    throw UserError("{}: \"weight_map\" names no tensor", source);
  }
  return result;
}

SafetensorsContent open_safetensors_directory(const fs::path& directory) {
  Shards shards;
  if (const auto index = read_text_file_if_any(directory / kIndexName, kMaxIndex)) {
    shards = read_index(*index, (directory / kIndexName).string());
  }
  SafetensorsContent content;
  if (!shards.empty() && !is_stale(shards, directory)) {
    content = open_shards(directory, shards);
  } else if (fs::exists(directory / kSingleName)) {
    content = open_safetensors(directory / kSingleName);
  } else {
    content = open_unlisted(directory);
  }
  check_unique_names(content, directory);
  return content;
}

}  // namespace quince
