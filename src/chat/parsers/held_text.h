// What of a text has to wait: it may be the beginning of a mark.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

namespace quince {

// The length of the longest end of text that begins mark, without being all of it.
inline size_t begun_mark(std::string_view text, std::string_view mark) {
  for (size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length) {
    if (mark.starts_with(text.substr(text.size() - length))) {
      return length;
    }
  }
  return 0;
}

inline bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

inline size_t trailing_spaces(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && is_space(text[text.size() - 1 - count])) {
    ++count;
  }
  return count;
}

// Moves what stands before the first of the marks to content, but for the spaces next to it, which
// are no part of an answer, and for what may be a mark's beginning. The mark, if it is there: it
// went to opening with those spaces. Otherwise empty.
inline std::string_view take_until(
    std::initializer_list<std::string_view> marks,
    std::string& held,
    std::string& content,
    std::string& opening) {
  size_t at = std::string::npos;
  size_t begun = 0;
  std::string_view found;
  for (const std::string_view mark : marks) {
    const size_t here = mark.empty() ? std::string::npos : held.find(mark);
    if (here < at) {
      at = here;
      found = mark;
    }
    begun = std::max(begun, mark.empty() ? 0 : begun_mark(held, mark));
  }
  size_t safe = found.empty() ? held.size() - begun : at;
  safe -= trailing_spaces(std::string_view(held).substr(0, safe));
  content += held.substr(0, safe);
  held.erase(0, safe);
  if (!found.empty()) {
    opening = held.substr(0, at - safe + found.size());
    held.erase(0, opening.size());
  }
  return found;
}

inline bool take_until(
    std::string_view mark, std::string& held, std::string& content, std::string& opening) {
  return !take_until({mark}, held, content, opening).empty();
}

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) {
    text.remove_prefix(1);
  }
  text.remove_suffix(trailing_spaces(text));
  return text;
}

// What is left of the text when it ends: behind calls the last spaces are no part of it.
inline std::string last_text(const std::string& held, int calls) {
  return calls > 0 ? held.substr(0, held.size() - trailing_spaces(held)) : held;
}

inline size_t leading_spaces(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && is_space(text[count])) {
    ++count;
  }
  return count;
}

}  // namespace quince
