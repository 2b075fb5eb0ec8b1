// SHA-256, for names that must not come twice: of models, and of pages of their caches. Any thread,
// one at a time for each object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace quince {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::span<const std::byte> bytes);
  // With its length: "ab" + "c" is not "a" + "bc".
  void add_text(std::string_view text);
  template <typename Number>
  void add_number(Number number) {
    add(std::as_bytes(std::span(&number, 1)));
  }
  std::array<uint8_t, 32> finish();  // once

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string hex(std::span<const uint8_t> bytes);  // lower case

}  // namespace quince
