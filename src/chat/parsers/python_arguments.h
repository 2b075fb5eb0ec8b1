// Arguments of a call as Python writes it, city="Rome", days=[1, 2]), turned into JSON while they
// come: from behind the opening bracket to the one that closes it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quince {

class PythonArguments {
 public:
  // names: of the parameters, for arguments that are given without one.
  explicit PythonArguments(std::vector<std::string> names = {}) : names_(std::move(names)) {}

  // Takes what can be taken off held; what came of it is added to out.
  void add(std::string& held, std::string& out);
  bool ended() const {
    return ended_;
  }

 private:
  enum class State { key, value, text, escape, code };

  size_t take(std::string_view rest, std::string& out);
  size_t take_key(std::string_view rest, std::string& out);
  size_t take_value(std::string_view rest, std::string& out);
  size_t take_text(std::string_view rest, std::string& out);
  size_t take_escape(char c, std::string& out);
  size_t take_code(std::string_view rest, std::string& out);
  size_t begin_text(std::string_view rest, std::string& out);
  void begin_argument(std::string_view name, std::string& out);
  void begin_value(std::string& out);
  void end_word(std::string& out, bool is_key = false);
  void close(std::string& out);

  std::vector<std::string> names_;
  State state_ = State::key;
  std::string open_;   // brackets inside of an argument
  std::string word_;   // a name, a number, True, None
  std::string quote_;  // that ends the text under way
  std::string code_;   // of a character in a text, in hexadecimal digits
  size_t code_size_ = 0;
  size_t given_ = 0;     // arguments
  bool comma_ = false;   // is due before the next value: there may be one behind the last
  bool valued_ = false;  // the argument has something
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace quince
