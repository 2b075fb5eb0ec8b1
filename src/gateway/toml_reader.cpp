#include "gateway/toml_reader.h"

#include <algorithm>
#include <sstream>

#include <fmt/ranges.h>

#include "base/closest.h"

namespace quince::gateway {

std::string shown(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_table<decltype(value)>) {
      out << "a table";
    } else {
      out << value;
    }
  });
  std::string text = out.str();
  constexpr size_t kMost = 80;
  if (text.size() > kMost) {
    text.resize(kMost);
    text += "...";
  }
  return text;
}

std::string TomlReader::place(std::string_view key) const {
  const toml::node* node = table_.get(key);
  const auto line = node != nullptr ? node->source().begin.line : table_.source().begin.line;
  std::string name = path_ + std::string(key);
  if (name.ends_with('.')) {
    name.pop_back();
  }
  return name.empty() ? fmt::format("{}:{}", source_, line)
                      : fmt::format("{}:{}: {}", source_, line, name);
}

UserError TomlReader::wrong_type(
    std::string_view key, const toml::node& node, std::string_view want) const {
  // Errors may end in a log, and these belong to secrets.
  const bool secret = key == "key" || key == "hash";
  return error(key, "is {}, want {}", secret ? std::string("of another type") : shown(node), want);
}

const toml::node* TomlReader::find(std::string_view key) {
  known_.emplace_back(key);
  return table_.get(key);
}

void TomlReader::integer(std::string_view key, int64_t low, int64_t high, int64_t& to) {
  if (const toml::node* node = find(key)) {
    const auto value = node->is_integer() ? node->value<int64_t>() : std::nullopt;
    if (!value || *value < low || *value > high) {
      throw wrong_type(key, *node, fmt::format("a whole number from {} to {}", low, high));
    }
    to = *value;
  }
}

void TomlReader::integer(std::string_view key, int low, int high, int& to) {
  int64_t value = to;
  integer(key, int64_t{low}, int64_t{high}, value);
  to = static_cast<int>(value);
}

void TomlReader::real(std::string_view key, double low, double high, double& to) {
  if (const toml::node* node = find(key)) {
    const auto value = node->is_number() ? node->value<double>() : std::nullopt;
    if (!value || !(*value >= low && *value <= high)) {
      throw wrong_type(key, *node, fmt::format("a number from {} to {}", low, high));
    }
    to = *value;
  }
}

void TomlReader::text(std::string_view key, std::string& to) {
  if (const toml::node* node = find(key)) {
    const auto value = node->is_string() ? node->value<std::string>() : std::nullopt;
    if (!value) {
      throw wrong_type(key, *node, "a text in quotes");
    }
    to = *value;
  }
}

void TomlReader::texts(std::string_view key, std::vector<std::string>& to) {
  const toml::node* node = find(key);
  if (node == nullptr) {
    return;
  }
  const toml::array* list = node->as_array();
  if (list == nullptr) {
    throw wrong_type(key, *node, "a list of texts, as in [\"a\", \"b\"]");
  }
  to.clear();
  for (const toml::node& item : *list) {
    const auto value = item.is_string() ? item.value<std::string>() : std::nullopt;
    if (!value || value->empty()) {
      throw error(key, "holds {}, want texts that are not empty", shown(item));
    }
    to.push_back(*value);
  }
}

std::optional<TomlReader> TomlReader::table(std::string_view key) {
  const toml::node* node = find(key);
  if (node == nullptr) {
    return std::nullopt;
  }
  if (!node->is_table()) {
    throw wrong_type(key, *node, fmt::format("a table: [{}]", called(key)));
  }
  return TomlReader(*node->as_table(), source_, path_ + std::string(key) + ".");
}

std::vector<std::pair<std::string, TomlReader>> TomlReader::tables() {
  std::vector<std::pair<std::string, TomlReader>> out;
  for (const auto& [key, node] : table_) {
    const std::string name(key.str());
    out.emplace_back(name, *table(name));
  }
  return out;
}

void TomlReader::finish() const {
  for (const auto& [key, node] : table_) {
    if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) {
      continue;
    }
    const auto near = closest(key.str(), known_);
    throw error(
        key.str(),
        "there is no such setting; {}",
        near ? fmt::format("did you mean {}?", *near)
             : fmt::format("known here: {}", fmt::join(known_, ", ")));
  }
}

}  // namespace quince::gateway
