// The form an answer is held to, in the ways that clients ask for it: response_format, json_schema,
// grammar, structured_outputs, and vLLM's older guided_*.
#pragma once

#include <optional>

#include "constraint/constraint_spec.h"
#include "server/fields.h"

namespace quince::server {

// given: set to the field that it came of. Throws ApiError 400; also when two forms are asked for
// at once.
std::optional<ConstraintSpec> parse_answer_form(Fields& fields, std::string& given);

}  // namespace quince::server
