// How rows of the settings table read and show values. For the files that hold its rows.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "cli/args.h"
#include "cli/settings.h"

namespace quince::cli {

// The rows about sampling that few people need; generation_settings() has all.
std::span<const Setting> sampling_settings();

// Backslash escapes are undone. Throws UserError: empty, not UTF-8.
void add_text(std::vector<std::string>& texts, std::string_view flag, const std::string& value);
std::string show_texts(const std::vector<std::string>& texts);

// The row of the engine's table for a field.
template <auto Field>
const NumberParam& number_param() {
  const auto rows = number_params();
  return *std::find_if(rows.begin(), rows.end(), [](const NumberParam& row) {
    const auto* field = std::get_if<std::remove_const_t<decltype(Field)>>(&row.field);
    return field != nullptr && *field == Field;
  });
}

template <auto Field>
void set_number(GenerationSettings& s, std::string_view flag, const std::string& value) {
  const NumberParam& row = number_param<Field>();
  const double number = row.whole() ? static_cast<double>(parse_integer(
                                          flag,
                                          value,
                                          std::numeric_limits<int64_t>::min(),
                                          std::numeric_limits<int64_t>::max()))
                                    : parse_real(
                                          flag,
                                          value,
                                          -std::numeric_limits<double>::max(),
                                          std::numeric_limits<double>::max());
  if (!row.accepts(number)) {
    throw UserError("{} {}: want {}, at most {:.9g}", flag, value, row.range, row.high);
  }
  row.set(s.sampling, number, flag);
}

inline constexpr int kNeverOff = std::numeric_limits<int>::min();

// Off: the value that switches it off.
template <auto Field, int Off>
std::string show_number(const GenerationSettings& s) {
  const double value = number_param<Field>().get(s.sampling);
  return value == Off ? fmt::format("{} (off)", value) : fmt::format("{:.4g}", value);
}

}  // namespace quince::cli
