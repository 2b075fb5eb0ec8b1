// The small files of a model directory: configuration, tokenizer, chat template.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "convert/plan.h"
#include "weights/model_files.h"

namespace quince {

// Called for each file with its name and text.
using AddText = std::function<void(std::string_view name, std::string_view text)>;

// config.json, generation_config.json, tokenizer.json, tokenizer_config.json, chat_template.jinja.
// Throws UserError when the model needs what the directory's form cannot say.
void write_side_files(const ModelFiles& files, const ConvertPlan& plan, const AddText& add);

// config.json in mlx-lm's form, and the check that mlx-lm can understand it.
boost::json::object mlx_config(const ModelFiles& files, const ConvertPlan& plan);

}  // namespace quince
