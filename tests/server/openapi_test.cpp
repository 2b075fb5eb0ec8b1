// /openapi.json is true to the code: to the routes, and to the fields that are read.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/openapi/openapi.h"
#include "server/routes.h"
#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return out;
}

// What a reference leads to.
json::value resolved(const json::object& document, const json::value& schema) {
  const json::value* reference =
      schema.is_object() ? schema.get_object().if_contains("$ref") : nullptr;
  if (reference == nullptr) {
    return schema;
  }
  const std::string_view name = reference->as_string();
  return document.at("components").at("schemas").at(name.substr(name.rfind('/') + 1));
}

// The fields of a request, those of its parts together.
void add_fields(
    const json::object& document, const json::value& given, std::set<std::string>& out) {
  const json::value found = resolved(document, given);
  const json::object& schema = found.as_object();
  if (const json::value* parts = schema.if_contains("allOf")) {
    for (const json::value& part : parts->as_array()) {
      add_fields(document, part, out);
    }
  }
  if (const json::value* properties = schema.if_contains("properties")) {
    for (const auto& property : properties->as_object()) {
      out.emplace(property.key());
    }
  }
}

// Every name that is a property anywhere.
void add_all_names(const json::value& value, std::set<std::string>& out) {
  if (const json::object* object = value.if_object()) {
    if (const json::value* properties = object->if_contains("properties")) {
      for (const auto& property : properties->as_object()) {
        out.emplace(property.key());
      }
    }
    for (const auto& member : *object) {
      add_all_names(member.value(), out);
    }
  } else if (const json::array* list = value.if_array()) {
    for (const json::value& item : *list) {
      add_all_names(item, out);
    }
  }
}

// Names that the sources ask a request's objects for: fields.text("name"), and names in lists that
// are gone through.
std::set<std::string> fields_in_sources() {
  std::set<std::string> names;
  const std::filesystem::path root =
      std::filesystem::path(QUINCE_TEST_DATA).parent_path() / "src" / "server";
  const std::regex asked(
      R"re(\.(?:find|number|integer|boolean|text|texts|object|array|know)\(\s*"(\w+)")re");
  const std::regex listed(
      R"re(for \(const char\* name :\s*\{([^}]*)\}\)\s*\{[^}]*(?:fields\.|given\.|budget\())re");
  const std::regex quoted(R"re("(\w+)")re");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".cpp") {
      continue;
    }
    std::ifstream stream(entry.path());
    std::stringstream text;
    text << stream.rdbuf();
    const std::string source = text.str();
    using Matches = std::sregex_iterator;
    for (Matches it(source.begin(), source.end(), asked); it != Matches(); ++it) {
      names.insert((*it)[1]);
    }
    for (Matches it(source.begin(), source.end(), listed); it != Matches(); ++it) {
      const std::string list = (*it)[1];
      for (Matches word(list.begin(), list.end(), quoted); word != Matches(); ++word) {
        names.insert((*word)[1]);
      }
    }
  }
  return names;
}

TEST(OpenApi, EveryRouteAndNoOther) {
  const json::object document = server::openapi_document("1.2.3");
  EXPECT_EQ(document.at("info").at("version"), "1.2.3");
  std::set<std::string> documented;
  std::set<std::string> names;
  for (const auto& path : document.at("paths").as_object()) {
    for (const auto& operation : path.value().as_object()) {
      ASSERT_TRUE(operation.value().is_object()) << path.key() << " is not described";
      documented.insert(std::string(operation.key()) + " " + std::string(path.key()));
      EXPECT_TRUE(operation.value().at("responses").as_object().contains("default"));
      EXPECT_TRUE(names.emplace(operation.value().at("operationId").as_string()).second);
      // What stands between braces is a parameter, and the reverse.
      std::string braces;
      if (const json::value* parameters = operation.value().as_object().if_contains("parameters")) {
        for (const json::value& parameter : parameters->as_array()) {
          braces += parameter.at("in") == "path"
                        ? "{" + std::string(parameter.at("name").as_string()) + "}"
                        : "";
        }
      }
      const std::string_view key = path.key();
      const size_t brace = std::min(key.find('{'), key.size());
      EXPECT_EQ(braces, key.substr(brace, key.find('}') + 1 - brace)) << key;
    }
  }
  std::set<std::string> served;
  for (const server::Route& route : server::routes()) {
    const std::string name = lower(route.method) + " " + std::string(route.path);
    EXPECT_TRUE(served.insert(name).second) << name << " is there twice";
    const json::object& operation =
        document.at("paths").at(std::string_view(route.path)).at(lower(route.method)).as_object();
    EXPECT_EQ(operation.contains("security"), route.open) << name;
  }
  EXPECT_EQ(documented, served);
}

TEST(OpenApi, EveryFieldThatIsRead) {
  const json::object document = server::openapi_document("1");
  std::set<std::string> names;
  add_all_names(document, names);
  const std::set<std::string> read = fields_in_sources();
  // Were they found at all?
  for (const char* known :
       {"messages",
        "encoding_format",
        "guided_regex",
        "budget_tokens",
        "user",
        "thinking_token_budget",
        "max_completion_tokens"}) {
    EXPECT_TRUE(read.contains(known)) << known;
  }
  EXPECT_GT(read.size(), 80u);
  for (const std::string& field : read) {
    EXPECT_TRUE(names.contains(field)) << field << " is read and not described";
  }
}

class OpenApiServed : public ServedTest<Script::script> {};

// The examples are answered, and with all fields that are described, as null, none is unknown.
TEST_F(OpenApiServed, ExamplesAreAnswered) {
  const json::object document = served().get("/openapi.json").json().as_object();
  int count = 0;
  for (const auto& path : document.at("paths").as_object()) {
    const json::value* operation = path.value().as_object().if_contains("post");
    const json::value* body =
        operation != nullptr ? operation->as_object().if_contains("requestBody") : nullptr;
    if (body == nullptr || path.key() == "/infill" || path.key() == "/slots/{id}") {
      continue;  // the model has no tokens for the one, and the other needs a folder: slots_test
    }
    const json::value& content = body->at("content").at("application/json");
    json::object request = content.at("example").as_object();
    const auto answer = [&] {
      return served().post(std::string(path.key()), json::serialize(request));
    };
    const Answer plain = answer();
    if (path.key().find("chat") == std::string_view::npos || plain.status == 200) {
      EXPECT_EQ(plain.status, 200) << path.key() << plain.body;
    }
    std::set<std::string> fields;
    add_fields(document, content.at("schema"), fields);
    for (const std::string& field : fields) {
      request.emplace(field, nullptr);
    }
    const Answer full = answer();
    EXPECT_EQ(full.status, plain.status) << path.key() << full.body;
    EXPECT_FALSE(full.headers.contains("x-quince-ignored"))
        << path.key() << full.headers.at("x-quince-ignored");
    ++count;
  }
  EXPECT_GE(count, 10);
}

TEST_F(OpenApiServed, NeedsNoKeyAndNoModel) {
  server::AppOptions options;
  options.api_keys = {"secret"};
  Served loading(nullptr, options);
  EXPECT_EQ(loading.get("/openapi.json").status, 200);
}

}  // namespace

}  // namespace quince::test
