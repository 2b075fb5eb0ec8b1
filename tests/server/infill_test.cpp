// /infill through a socket, with a model whose vocabulary has the tokens for it.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;

// The script model with these special tokens, from 300 on.
std::shared_ptr<server::ServedModel> with_tokens(
    const std::string& name, const std::vector<std::string>& tokens) {
  const std::filesystem::path file =
      std::filesystem::path(script_folder(Script::script, name)) / "tokenizer.json";
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  json::value tokenizer = json::parse(text.str());
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokenizer.at("added_tokens")
        .as_array()
        .push_back(json::object{
            {"id", 300 + i},
            {"content", tokens[i]},
            {"single_word", false},
            {"lstrip", false},
            {"rstrip", false},
            {"normalized", false},
            {"special", true}});
  }
  std::ofstream(file) << json::serialize(tokenizer);
  return serve_script(Script::script, name);
}

std::string prompt_of(Served& served, const std::string& body) {
  const Answer answer = served.post("/infill", body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  return std::string(answer.json().at("prompt").as_string());
}

TEST(Infill, PrefixSuffixMiddle) {
  Served served(with_tokens("F", {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}));
  EXPECT_EQ(
      prompt_of(served, R"({"input_prefix":"A","input_suffix":"B","n_predict":1})"),
      "<s><|fim_prefix|>A<|fim_suffix|>B<|fim_middle|>");
  EXPECT_EQ(
      prompt_of(served, R"({"input_suffix":"B","prompt":"C","n_predict":1})"),
      "<s><|fim_prefix|><|fim_suffix|>B<|fim_middle|>C");
  // Marks in the texts of others are no marks.
  const json::value answer =
      served.post("/infill", R"({"input_prefix":"<|fim_middle|>","input_suffix":"","n_predict":1})")
          .json();
  EXPECT_GT(answer.at("tokens_evaluated").as_int64(), 10);
  for (const std::string& body :
       {"{}",
        R"({"input_prefix":5})",
        R"({"input_prefix":"a","input_extra":[{}]})",
        R"({"input_prefix":"a","input_extra":[1]})"}) {
    EXPECT_EQ(served.post("/infill", body).status, 400) << body;
  }
  const Answer stream =
      served.post("/infill", R"({"input_prefix":"A","n_predict":1,"stream":true})");
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream; charset=utf-8");
}

TEST(Infill, OtherFiles) {
  Served served(with_tokens(
      "R", {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"}));
  EXPECT_EQ(
      prompt_of(
          served,
          R"({"input_prefix":"A","input_suffix":"B","n_predict":1,"input_extra":[{"filename":"x.c","text":"C"}]})"),
      "<s><repo_name>project\n<file_sep>x.c\nC<file_sep>filename\n<fim_prefix>A<fim_suffix>B<fim_"
      "middle>");
}

// Refused by its size, before it is made into tokens.
TEST(Infill, TextsThatCannotFit) {
  Served served(with_tokens("F3", {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}));
  const std::string huge(size_t{8} << 20, 'x');
  for (const std::string field : {"input_prefix", "input_suffix"}) {
    const Answer answer = served.post("/infill", "{\"" + field + "\":\"" + huge + "\"}");
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.json().at("error").at("code"), "context_length_exceeded");
    EXPECT_EQ(answer.json().at("error").at("param"), json::string(field));
  }
}

}  // namespace

}  // namespace quince::test
