// Prompts that are used as they are: a text, token ids, or a list of either.
#pragma once

#include <string_view>
#include <vector>

#include "server/fields.h"
#include "server/served_model.h"

namespace quince::server {

// Texts get the tokenizer's own beginning once; token ids are taken as they are; an empty prompt
// becomes the model's first token. most: prompts. Throws ApiError 400.
std::vector<std::vector<Token>> parse_prompts(
    Fields& fields, std::string_view name, const ServedModel& model, size_t most = 512);

}  // namespace quince::server
