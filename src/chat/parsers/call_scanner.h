// Reads one JSON object {"name": "f", "arguments": {...}} while it comes: the name as soon as it is
// known, the arguments piece by piece as they are written. "parameters" is as good as "arguments".
#pragma once

#include <string>
#include <string_view>

namespace quince {

class CallScanner {
 public:
  // How much of the text was taken: all of it, or up to the object's end, or up to where it is
  // none.
  size_t add(std::string_view text);

  bool named() const {
    return named_;
  }
  bool ended() const {
    return ended_;
  }
  bool broken() const {
    return broken_;
  }
  const std::string& name() const {
    return name_;
  }
  // Arguments that have come since the last time. None before the name is known.
  std::string take_arguments();
  const std::string& raw() const {  // all that was taken
    return raw_;
  }

 private:
  static constexpr size_t kNone = std::string::npos;

  void take(char c);
  void take_in_string(char c);
  void open();
  void close();
  void begin_value();
  void end_value();
  std::string text_at(size_t begin) const;  // of a JSON string that ends here

  std::string raw_;
  std::string name_;
  std::string arguments_;  // not yet taken
  std::string key_;
  size_t string_at_ = 0;
  size_t value_at_ = kNone;  // of the object's own members
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool wants_key_ = false;
  bool wants_colon_ = false;
  bool in_value_ = false;
  bool has_arguments_ = false;
  bool arguments_over_ = false;  // the first ones count
  bool named_ = false;
  bool ended_ = false;
  bool broken_ = false;
};

}  // namespace quince
