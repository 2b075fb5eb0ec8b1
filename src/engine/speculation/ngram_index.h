// Guesses what follows from what is there already: the text behind the last earlier place where the
// same few tokens stood (prompt lookup, Saxena 2023). No MLX.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace quince {

class NgramIndex {
 public:
  static constexpr int kShortest = 2;
  static constexpr int kLongest = 4;

  struct Guess {
    std::vector<int32_t> tokens;
    int matched = 0;  // tokens that stood there too, kShortest to kLongest; 0: no guess
  };

  // tokens: those of the calls before, and others behind them. At most `most` are guessed. A text
  // that repeats itself is guessed to go on doing so.
  Guess guess(std::span<const int32_t> tokens, int most);

 private:
  static uint64_t key(std::span<const int32_t> tokens, size_t end, int n);
  void extend(std::span<const int32_t> tokens);

  // By length of what is looked for: where it last stood, as the place of the token behind it.
  std::array<std::unordered_map<uint64_t, uint32_t>, kLongest - kShortest + 1> places_;
  size_t seen_ = 0;  // ends of what is indexed
};

}  // namespace quince
