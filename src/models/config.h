// Reading config.json strictly: every field has a type and a range, and what does not fit is a
// UserError that names file, field and value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

namespace quince {

class Config {
 public:
  // source: the model's path, for errors. The object must outlive this.
  Config(const boost::json::object& object, std::string source);

  // Integers in [1, most].
  int count(std::string_view key, int most) const;
  int count(std::string_view key, int most, int otherwise) const;
  std::optional<int> maybe_count(std::string_view key, int most) const;  // absent or null: nothing
  int whole(std::string_view key, int most, int otherwise) const;        // in [0, most]
  // Finite numbers above 0.
  double positive(std::string_view key, double otherwise) const;
  std::optional<double> maybe_positive(std::string_view key) const;
  bool flag(std::string_view key, bool otherwise) const;
  std::optional<bool> maybe_flag(std::string_view key) const;
  std::string text(std::string_view key, std::string_view otherwise) const;
  const boost::json::object* maybe_object(std::string_view key) const;  // absent or null: null
  std::optional<std::vector<std::string>> maybe_texts(std::string_view key) const;
  bool has(std::string_view key) const;  // and is not null

  // "config.json of /models/x"
  const std::string& source() const {
    return source_;
  }
  // UserError "<source>: "key" is <value>, want <want>"
  [[noreturn]] void refuse(std::string_view key, std::string_view want) const;

 private:
  const boost::json::value* find(std::string_view key) const;  // null when absent or null
  const boost::json::object& object_;
  std::string source_;
};

}  // namespace quince
