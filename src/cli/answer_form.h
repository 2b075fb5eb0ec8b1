// The form that answers are held to, as flags give it.
#pragma once

#include <optional>

#include "constraint/constraint_spec.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quince::cli {

// --json-schema, --grammar, --regex and --choice. What they say goes to form; two of them at once
// throw UserError.
void add_form_flags(CLI::App& app, std::optional<ConstraintSpec>& form);

}  // namespace quince::cli
