// Requests that can never be answered are refused as such, before work is done for them.
#include <array>
#include <cstdlib>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/prompt_bound.h"
#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  while (times-- > 0) {
    out += text;
  }
  return out;
}

class Bounds : public testing::Test {
 protected:
  static Served& served() {
    static Served one = make();
    return one;
  }
  static Served make() {
    EngineOptions engine;
    engine.max_running = 4;
    engine.max_waiting = 6;
    return Served(serve_script(Script::script, "S", engine));
  }
};

TEST_F(Bounds, MoreAnswersThanMayEverWaitAreTheRequestsFault) {
  for (const std::string fields :
       {R"("prompt":"x","n":11)",
        R"("prompt":["a","b","c"],"n":4)",
        R"("prompt":"x","n":1,"best_of":11)"}) {
    const Answer answer = served().post("/v1/completions", "{" + fields + "}");
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("at most 10"));
    EXPECT_EQ(answer.json().at("error").at("param"), "n");
  }
  EXPECT_EQ(served().post("/v1/completions", R"({"prompt":"x","n":4,"max_tokens":1})").status, 200);
}

// Models of every day, where they are there; the script's vocabulary has no token for most text.
class RealBounds : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("QUINCE_TEST_MODELS");
    if (folder == nullptr) {
      GTEST_SKIP() << "QUINCE_TEST_MODELS is not set";
    }
    cli::LoadRequest request;
    request.model = std::string(folder) + "/" + GetParam();
    request.compute.threads = 1;
    request.engine.context_length = 512;
    request.quiet = true;
    cli::LoadedModel loaded = cli::load(request);
    model_ = std::make_shared<server::ServedModel>(std::move(loaded.text));
    model_->id = "real";
    model_->engine = std::move(loaded.engine);
  }

  std::shared_ptr<server::ServedModel> model_;
};

TEST_P(RealBounds, TheLongestTokenBoundsEveryText) {
  const Tokenizer& tokenizer = model_->text.tokenizer;
  const size_t longest = server::longest_token(tokenizer);
  ASSERT_GT(longest, 8U);
  for (const std::string text :
       {"The quick brown fox ",
        "    ",
        "\n\n\n",
        "\xf0\x9f\x98\x80",
        "aaaaaaaa",
        "0",
        "-",
        "\r\n",
        "\xe1\x9a\xa0",
        "\xcc\x81",
        "\x01",
        "<|im_start|>"}) {
    const std::string many = repeated(text, 3000);
    EXPECT_GE(tokenizer.encode(many).size() * longest, many.size()) << text;
  }
}

TEST_P(RealBounds, TextsThatCannotFitAreRefusedByTheirSize) {
  const bool chats = model_->text.chat_template.has_value();
  Served served(model_);
  const std::string huge = repeated("word ", size_t{4} << 20);
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {"/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + huge + "\"}]}"},
           {"/v1/completions", R"({"prompt":")" + huge + "\"}"},
           {"/completion", R"({"prompt":")" + huge + "\"}"}}) {
    if (!chats && path == "/v1/chat/completions") {
      continue;
    }
    const Answer answer = served.post(path, body);
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.json().at("error").at("code"), "context_length_exceeded") << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("bytes, which are more than"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

INSTANTIATE_TEST_SUITE_P(
    Models,
    RealBounds,
    testing::Values("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"));

// Whatever is unknown becomes one token: sizes tell nothing, and nothing is refused by them.
TEST(TokenBound, ATokenThatSwallowsAnythingGivesNone) {
  const Tokenizer swallows(
      R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,
          "post_processor":null,"decoder":null,
          "model":{"type":"WordLevel","vocab":{"a":0,"<unk>":1},"unk_token":"<unk>"}})",
      "a test");
  EXPECT_EQ(server::longest_token(swallows), 0U);
}

// What is only turned into tokens is no prompt, and bounded all the same.
TEST_F(Bounds, LongTextsAreNotTurnedIntoTokens) {
  const std::string huge = repeated("The quick ", size_t{1} << 20);
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {"/tokenize", R"({"content":")" + huge + "\"}"},
           {"/tokenize", R"({"prompt":")" + huge + "\"}"},
           {"/v1/completions", R"({"truncate_prompt_tokens":5,"prompt":")" + huge + "\"}"},
           {"/v1/completions",
            R"({"truncate_prompt_tokens":5,"prompt":[")" + huge.substr(0, huge.size() / 3) +
                R"(",")" + huge.substr(huge.size() / 3) + "\"]}"}}) {
    const Answer answer = served().post(path, body);
    EXPECT_EQ(answer.status, 400) << path;
    EXPECT_EQ(answer.json().at("error").at("code"), "string_above_max_length") << answer.body;
  }
  const Answer tokens =
      served().post("/detokenize", R"({"tokens":[5)" + repeated(",5", size_t{1} << 20) + "]}");
  EXPECT_EQ(tokens.status, 400);
  EXPECT_EQ(tokens.json().at("error").at("code"), "array_above_max_length") << tokens.body;
  const Answer fits = served().post("/tokenize", R"({"content":")" + repeated("A", 1000) + "\"}");
  EXPECT_EQ(fits.json().at("count"), 1000);
}

// Every route that is given messages, whether or not tokens are made of them.
TEST(ChatBounds, LongConversations) {
  Served served(serve_script(Script::majority, "M"));
  const std::string huge = repeated("The quick ", size_t{1} << 20);
  const std::string messages =
      R"({"max_tokens":5,"truncate_prompt_tokens":5,"messages":[{"role":"user","content":")" +
      huge + "\"}]}";
  for (const std::string path :
       {"/apply-template", "/tokenize", "/v1/chat/completions", "/v1/messages/count_tokens"}) {
    const Answer answer = served.post(path, messages);
    EXPECT_EQ(answer.status, 400) << path;
    EXPECT_THAT(answer.body, HasSubstr("messages has")) << path;
    EXPECT_THAT(answer.body, HasSubstr("at most 4194304")) << path;
  }
  const std::string input = R"({"input":")" + huge + "\"}";
  const Answer answer = served.post("/v1/responses", input);
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json().at("error").at("param"), "input");
}

// The field that holds what is too long, by the name that the route has for it.
TEST(ChatBounds, NameTheField) {
  Served served(serve_script(Script::majority, "M"));
  for (const size_t size : {size_t{600}, size_t{1} << 20}) {  // by its tokens, and by its bytes
    const std::string text(size, 'B');
    const std::vector<std::array<std::string, 3>> cases = {
        {"/v1/chat/completions", "messages", R"([{"role":"user","content":")" + text + "\"}]"},
        {"/v1/responses", "input", "\"" + text + "\""},
        {"/v1/responses", "input", R"([{"role":"user","content":")" + text + "\"}]"},
        {"/v1/completions", "prompt", "\"" + text + "\""},
        {"/completion", "prompt", "\"" + text + "\""},
        {"/v1/embeddings", "input", "\"" + text + "\""}};
    for (const auto& [path, field, value] : cases) {
      const Answer answer = served.post(path, "{\"" + field + "\":" + value + "}");
      EXPECT_EQ(answer.status, 400) << path;
      const json::value error = answer.json().at("error");
      EXPECT_EQ(error.at("code"), "context_length_exceeded") << answer.body;
      EXPECT_EQ(error.at("param"), json::string(field)) << path << size;
    }
  }
  for (const auto& [body, field] : std::vector<std::pair<std::string, std::string>>{
           {R"({"input":[{"role":"wizard","content":"x"}]})", "input[0].role"},
           {R"({"instructions":"i","input":[{"role":"user","content":5}]})", "input[0].content"},
           {R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})",
            "input[0].content[0].type"},
           {R"({"input":[{"type":"function_call_output","call_id":"c","output":5}]})",
            "input[0].output"},
           {R"({"input":[]})", "input"},
           {R"({"input":"x","text":{"format":{"type":"json_schema"}}})", "text.format.schema"},
           {R"({"input":"x","text":{"format":{"type":"xml"}}})", "text.format.type"},
           {R"({"input":"x","text":{"format":{"type":"json_schema","schema":{"type":"no"}}}})",
            "text.format"},
           {R"({"input":"x","tools":[{"type":"web_search"},{"type":"function"}]})",
            "tools[1].name"}}) {
    const Answer answer = served.post("/v1/responses", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.json().at("error").at("param"), json::string(field)) << answer.body;
  }
}

TEST_F(Bounds, TextsThatCannotFitAreRefusedByTheirSize) {
  const std::string huge = repeated("The quick ", size_t{1} << 20);
  for (const std::string path : {"/v1/completions", "/completion"}) {
    const Answer answer = served().post(path, R"({"prompt":")" + huge + "\"}");
    EXPECT_EQ(answer.status, 400) << path;
    EXPECT_EQ(answer.json().at("error").at("code"), "context_length_exceeded") << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("bytes, which are more than"));
  }
}

}  // namespace

}  // namespace quince::test
