// Texts of tokens that end a turn. Checkpoints made before their keys existed, or by careless
// converters, name only one of them as end token and would run on into the next turn. Only special
// tokens count: a model may have such a text as ordinary words.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace quince {

inline constexpr std::array<std::string_view, 10> kTurnEnds{
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<EOT>",
    "[EOT]"};

constexpr bool is_turn_end(std::string_view token) {
  return std::find(kTurnEnds.begin(), kTurnEnds.end(), token) != kTurnEnds.end();
}

}  // namespace quince
