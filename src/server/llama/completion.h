// What /completion and /infill have in common: all but their prompts.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "server/fields.h"
#include "server/routes.h"

namespace quince::server {

// one_prompt: the answer is an object, not a list. prompt_field: what the prompts came of. Throws
// ApiError 400.
Response answer_llama(
    const RouteCall& call,
    Fields& fields,
    const std::shared_ptr<ServedModel>& model,
    std::vector<std::vector<Token>> prompts,
    bool one_prompt,
    std::string_view prompt_field);

}  // namespace quince::server
