// The form that answers are held to, as flags give it.
#pragma once

#include <optional>

#include <CLI/CLI.hpp>

#include "constraint/constraint_spec.h"

namespace quince::cli {

// --json-schema, --grammar, --regex and --choice. What they say goes to form; two of them at once
// throw UserError.
void add_form_flags(CLI::App& app, std::optional<ConstraintSpec>& form);

}  // namespace quince::cli
