// POST /infill as llama-server has it: what stands between input_prefix and input_suffix.
#include <array>
#include <utility>

#include <fmt/ranges.h>

#include "server/errors.h"
#include "server/llama/completion.h"
#include "server/prompt_bound.h"

namespace quince::server {

namespace json = boost::json;

namespace {

// The tokens that models were taught to fill in with, by family. They stand before what is before
// the gap, before what is behind it, and before what goes in.
struct FillMarks {
  std::string_view prefix;
  std::string_view suffix;
  std::string_view middle;
  std::string_view repository = "";  // before a repository's name
  std::string_view file = "";        // before a file's name
};
constexpr std::array<FillMarks, 6> kMarks{{
    // Qwen2.5-Coder, CodeGemma, Granite
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"},  // StarCoder
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},                         // DeepSeek
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                                                 // CodeLlama
    {"<PRE>", "<SUF>", "<MID>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM
}};

struct FillTokens {
  Token prefix = 0;
  Token suffix = 0;
  Token middle = 0;
  std::optional<Token> repository;
  std::optional<Token> file;
};

FillTokens fill_tokens(const ServedModel& model) {
  const auto id = [&](std::string_view mark) {
    return mark.empty() ? std::nullopt : model.text.tokenizer.token_to_id(mark);
  };
  std::vector<std::string_view> missing;
  for (const FillMarks& marks : kMarks) {
    const auto prefix = id(marks.prefix);
    const auto suffix = id(marks.suffix);
    const auto middle = id(marks.middle);
    if (prefix && suffix && middle) {
      return {*prefix, *suffix, *middle, id(marks.repository), id(marks.file)};
    }
    if (missing.empty()) {
      for (const std::string_view mark : {marks.prefix, marks.suffix, marks.middle}) {
        if (!id(mark)) {
          missing.push_back(mark);
        }
      }
    }
  }
  throw ApiError(
      400,
      "not_supported_error",
      fmt::format(
          "{} was not taught to fill in: its vocabulary lacks {}, and the marks of the other "
          "families that were",
          model.id,
          fmt::join(missing, ", ")),
      "model",
      "fill_in_not_supported");
}

// The prompt as it grows; a text that cannot fit is refused before it is made into tokens.
class FillPrompt {
 public:
  explicit FillPrompt(const ServedModel& model) : model_(model) {}

  void add(Token mark) {
    ids_.push_back(mark);
  }
  void add(const std::string& text, std::string_view field) {
    bytes_ += text.size();
    refuse_too_long(bytes_, model_, field);
    const std::vector<Token> more = model_.text.tokenizer.encode(text);
    ids_.insert(ids_.end(), more.begin(), more.end());
  }
  std::vector<Token> take() {
    return std::move(ids_);
  }

 private:
  const ServedModel& model_;
  std::vector<Token> ids_;
  size_t bytes_ = 0;
};

// Other files, before the one with the gap.
void append_extra(Fields& fields, const FillTokens& marks, FillPrompt& prompt) {
  constexpr std::string_view kField = "input_extra";
  const json::array* list = fields.array(kField);
  if (list == nullptr || list->empty()) {
    return;
  }
  if (marks.repository) {
    prompt.add(*marks.repository);
    prompt.add("project\n", kField);
  }
  const auto begin_file = [&](const std::string& name) {
    if (marks.file) {
      prompt.add(*marks.file);
      prompt.add(name + "\n", kField);
    } else {
      prompt.add("\n\n--- " + name + " ---\n\n", kField);
    }
  };
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = fmt::format("input_extra[{}]", i);
    const json::object* object = list->at(i).if_object();
    if (object == nullptr) {
      throw bad_field(path, "{} is {}, want an object", path, shown(list->at(i)));
    }
    Fields extra(*object, path + ".");
    const auto text = extra.text("text");
    if (!text) {
      throw bad_field(path + ".text", "{}.text is missing", path);
    }
    begin_file(extra.text("filename").value_or("file"));
    prompt.add(*text, kField);
  }
  if (marks.file) {
    begin_file("filename");
  }
}

}  // namespace

Response infill(const RouteCall& call) {
  const json::object body = parse_body(call.request.body);
  Fields fields(body);
  const auto model = call.app.model(fields.text("model").value_or(""));
  const FillTokens marks = fill_tokens(*model);
  const auto before = fields.text("input_prefix");
  const auto behind = fields.text("input_suffix");
  if (!before && !behind) {
    throw bad_field("input_prefix", "input_prefix and input_suffix are missing: want one at least");
  }
  FillPrompt prompt(*model);
  if (model->text.bos && model->text.add_bos) {
    prompt.add(*model->text.bos);
  }
  append_extra(fields, marks, prompt);
  prompt.add(marks.prefix);
  prompt.add(before.value_or(""), "input_prefix");
  prompt.add(marks.suffix);
  prompt.add(behind.value_or(""), "input_suffix");
  prompt.add(marks.middle);
  prompt.add(fields.text("prompt").value_or(""), "prompt");
  return answer_llama(call, fields, model, {prompt.take()}, true, "input_prefix");
}

}  // namespace quince::server
