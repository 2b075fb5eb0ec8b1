#include "cli/answer_form.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <boost/json.hpp>

#include "base/error.h"
#include "cli/args.h"
#include "cli/prompt.h"

namespace quince::cli {

namespace {

namespace json = boost::json;

// An object, an array, true or false.
ConstraintSpec schema_form(const std::string& value) {
  const size_t first = value.find_first_not_of(" \t\r\n");
  const bool text = first != std::string::npos && (value[first] == '{' || value[first] == '[' ||
                                                   value == "true" || value == "false");
  return {ConstraintKind::json_schema, text ? value : read_prompt_file(value)};
}

// The two notations cannot be mistaken for each other: every GBNF rule has a "::=", no Lark rule.
ConstraintSpec grammar_form(const std::string& value) {
  const bool text = value.find("::=") != std::string::npos ||
                    value.find('\n') != std::string::npos ||
                    value.find(": ") != std::string::npos;  // a Lark rule of one line
  ConstraintSpec form{ConstraintKind::gbnf, text ? value : read_prompt_file(value)};
  if (form.text.find("::=") == std::string::npos) {
    form.kind = ConstraintKind::lark;
  }
  return form;
}

ConstraintSpec choice_form(const std::string& flag, const std::string& value) {
  json::array choices;
  size_t begin = 0;
  while (begin <= value.size()) {
    const size_t end = std::min(value.find(',', begin), value.size());
    if (end == begin) {
      throw UserError("{} '{}': want texts with commas between them, none empty", flag, value);
    }
    choices.emplace_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
  return {ConstraintKind::choice, json::serialize(choices)};
}

}  // namespace

void add_form_flags(CLI::App& app, std::optional<ConstraintSpec>& form) {
  FlagGroup group(app, "Form of the answer");
  auto given = std::make_shared<std::string>();
  const auto set = [&form, given](const std::string& flag, ConstraintSpec spec) {
    if (form) {
      throw UserError("{}: the form of the answer is already given by {}", flag, *given);
    }
    *given = flag;
    form = std::move(spec);
  };
  group.value(
      "-j,--json-schema,--json-schema-file",
      "FILE|TEXT",
      "Answer in JSON that this schema allows; '{}' allows any",
      [set](const std::string& flag, const std::string& value) { set(flag, schema_form(value)); });
  group.value(
      "--grammar,--grammar-file",
      "FILE|TEXT",
      "Answer what this grammar allows (GBNF as in llama.cpp, or Lark)",
      [set](const std::string& flag, const std::string& value) { set(flag, grammar_form(value)); });
  group.value(
      "--regex",
      "EXPRESSION",
      "Answer what this regular expression matches as a whole",
      [set](const std::string& flag, const std::string& value) {
        check_utf8(value, flag);
        set(flag, {ConstraintKind::regex, value});
      });
  group.value(
      "--choice",
      "A,B,...",
      "Answer one of these texts",
      [set](const std::string& flag, const std::string& value) {
        check_utf8(value, flag);
        set(flag, choice_form(flag, value));
      });
}

}  // namespace quince::cli
