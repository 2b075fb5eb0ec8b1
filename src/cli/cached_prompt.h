// The two halves of a prompt of which the first is computed once and kept in a file: the user's
// message up to the end of the file's text, and what is asked behind it. As mlx-lm cuts them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/prompt.h"

namespace quince::cli {

// Everything until the end of `text`, which is the beginning of the user's message; without a
// template, or with raw, the text as it is. Throws UserError when the template does not show it.
std::vector<Token> prompt_to_cache(
    const TextSide& side,
    const std::optional<std::string>& system,
    const std::string& text,
    bool raw,
    const boost::json::object& values);

// `text` and what the template puts behind the user's message.
std::vector<Token> prompt_after_cache(
    const TextSide& side, const std::string& text, bool raw, const boost::json::object& values);

}  // namespace quince::cli
