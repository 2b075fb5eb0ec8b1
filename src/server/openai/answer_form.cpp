#include "server/openai/answer_form.h"

#include <string>

#include "server/errors.h"

namespace quince::server {

namespace json = boost::json;

namespace {

class Forms {
 public:
  void set(const std::string& name, ConstraintSpec spec) {
    if (form_) {
      throw bad_field(name, "{}: the form of the answer is already given by {}", name, given_);
    }
    given_ = name;
    form_ = std::move(spec);
  }
  const std::string& given() const {  // the field
    return given_;
  }
  std::optional<ConstraintSpec> take() {
    return std::move(form_);
  }

 private:
  std::string given_;
  std::optional<ConstraintSpec> form_;
};

// A schema, or its text.
ConstraintSpec schema(const json::value& value, const std::string& name) {
  if (value.is_string()) {
    return {ConstraintKind::json_schema, std::string(value.get_string())};
  }
  if (!value.is_object() && !value.is_bool()) {
    throw bad_field(name, "{} is {}, want a JSON schema", name, shown(value));
  }
  return {ConstraintKind::json_schema, json::serialize(value)};
}

// The two notations cannot be mistaken for each other: every GBNF rule has a "::=", no Lark rule.
ConstraintSpec grammar(std::string text) {
  const bool lark = text.find("::=") == std::string::npos && text.find(':') != std::string::npos;
  return {lark ? ConstraintKind::lark : ConstraintKind::gbnf, std::move(text)};
}

ConstraintSpec choice(const json::value& value, const std::string& name) {
  const json::array* texts = value.if_array();
  bool good = texts != nullptr && !texts->empty();
  for (size_t i = 0; good && i < texts->size(); ++i) {
    good = texts->at(i).is_string() && !texts->at(i).get_string().empty();
  }
  if (!good) {
    throw bad_field(name, "{} is {}, want a list of texts, none empty", name, shown(value));
  }
  return {ConstraintKind::choice, json::serialize(value)};
}

void response_format(Fields& fields, Forms& forms) {
  const json::object* object = fields.object("response_format");
  if (object == nullptr) {
    return;
  }
  Fields format(*object, "response_format.");
  const std::string type = format.text("type").value_or("");
  if (type == "json_object") {
    const json::value* own = format.find("schema");  // llama.cpp's
    forms.set(
        "response_format",
        own != nullptr ? schema(*own, "response_format.schema")
                       : ConstraintSpec{ConstraintKind::json_object, ""});
  } else if (type == "json_schema") {
    const json::object* named = format.object("json_schema");
    const json::value* inner = named != nullptr ? named->if_contains("schema") : nullptr;
    if (inner == nullptr) {
      inner = format.find("schema");
    }
    if (inner == nullptr) {
      throw bad_field(
          "response_format.json_schema.schema", "response_format.json_schema.schema is missing");
    }
    forms.set("response_format", schema(*inner, "response_format.json_schema.schema"));
  } else if (type != "text") {
    throw bad_field(
        "response_format.type",
        "response_format.type is \"{}\", want text, json_object or json_schema",
        type);
  }
}

void structured_outputs(Fields& fields, Forms& forms) {
  const json::object* object = fields.object("structured_outputs");
  if (object == nullptr) {
    return;
  }
  Fields given(*object, "structured_outputs.");
  if (const json::value* value = given.find("json")) {
    forms.set("structured_outputs.json", schema(*value, "structured_outputs.json"));
  }
  if (auto text = given.text("regex")) {
    forms.set("structured_outputs.regex", {ConstraintKind::regex, *text});
  }
  if (const json::value* value = given.find("choice")) {
    forms.set("structured_outputs.choice", choice(*value, "structured_outputs.choice"));
  }
  if (auto text = given.text("grammar")) {
    forms.set("structured_outputs.grammar", grammar(*text));
  }
  if (given.boolean("json_object").value_or(false)) {
    forms.set("structured_outputs.json_object", {ConstraintKind::json_object, ""});
  }
  for (const char* name :
       {"disable_fallback",
        "disable_any_whitespace",
        "disable_additional_properties",
        "whitespace_pattern"}) {
    given.know(name);
  }
  const auto unknown = given.unknown();
  if (!unknown.empty()) {
    throw bad_field(
        unknown.front(),
        "{}: no such form; want json, regex, choice, grammar or json_object",
        unknown.front());
  }
}

}  // namespace

std::optional<ConstraintSpec> parse_answer_form(Fields& fields, std::string& given) {
  Forms forms;
  response_format(fields, forms);
  structured_outputs(fields, forms);
  for (const char* name : {"json_schema", "guided_json"}) {
    if (const json::value* value = fields.find(name)) {
      forms.set(name, schema(*value, name));
    }
  }
  for (const char* name : {"grammar", "guided_grammar"}) {
    const auto text = fields.text(name);
    if (text && !text->empty()) {
      forms.set(name, grammar(*text));
    }
  }
  if (auto text = fields.text("guided_regex")) {
    forms.set("guided_regex", {ConstraintKind::regex, *text});
  }
  if (const json::value* value = fields.find("guided_choice")) {
    forms.set("guided_choice", choice(*value, "guided_choice"));
  }
  given = forms.given();
  return forms.take();
}

}  // namespace quince::server
