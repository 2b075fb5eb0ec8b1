// The commands from outside: exit statuses, messages, output.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "cli/run_program.h"
#include "cli/tiny_folder.h"
#include "weights/files.h"

namespace quince {
namespace {

namespace json = boost::json;
using test::Program;
using test::ProgramResult;
using test::run_program;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

class CommandTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempFolder;
    test::write_tiny_folder(*folder_ / "tiny");
    test::write_tiny_folder(*folder_ / "plain", "gemma3", /* with_template */ false);
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static std::string model() {
    return *folder_ / "tiny";
  }
  static std::string plain_model() {
    return *folder_ / "plain";
  }
  static test::TempFolder* folder_;
};
test::TempFolder* CommandTest::folder_ = nullptr;

json::object parse_object(const std::string& text) {
  return json::parse(text).as_object();
}

// One line on standard error that begins with "quince: ", nothing on standard output.
void expect_refused(
    const ProgramResult& result, int status, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("quince: "));
  for (const std::string& part : parts) {
    EXPECT_THAT(result.err, HasSubstr(part));
  }
}

TEST_F(CommandTest, VersionAndHelp) {
  ProgramResult version = run_program({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.out, StartsWith("quince "));
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"help"}, {"-h"}}) {
    ProgramResult help = run_program(arguments);
    EXPECT_EQ(help.status, 0);
    for (const char* name : {"run", "pull", "list", "inspect", "convert", "bench"}) {
      EXPECT_THAT(help.out, HasSubstr(name));
    }
  }
  for (const char* name : {"run", "pull", "list", "inspect", "convert", "bench"}) {
    EXPECT_EQ(run_program({name, "--help"}).status, 0) << name;
    EXPECT_EQ(run_program({"help", name}).out, run_program({name, "--help"}).out);
  }
  EXPECT_EQ(run_program({}).status, 2);
}

TEST_F(CommandTest, WrongCommands) {
  expect_refused(run_program({"rnu", "x"}), 2, {"rnu", "did you mean run?"});
  expect_refused(run_program({"frobnicate"}), 2, {"frobnicate: unknown command"});
  expect_refused(run_program({"--frob"}), 2, {"--frob"});
  // What other programs call a command, and a model without one.
  expect_refused(run_program({"chat", "x"}), 2, {"chat", "did you mean run?"});
  expect_refused(run_program({"ls"}), 2, {"ls", "did you mean list?"});
  expect_refused(run_program({"bench", "serv"}), 2, {"did you mean quince bench serve?"});
  expect_refused(run_program({model(), "hi"}), 2, {"did you mean quince run " + model() + "?"});
}

TEST_F(CommandTest, UsageShowsWhatMayBeLeftOut) {
  EXPECT_THAT(run_program({"run", "--help"}).out, HasSubstr("quince run MODEL [PROMPT] [FLAGS]"));
  EXPECT_THAT(run_program({"convert", "--help"}).out, HasSubstr("quince convert IN OUT [FLAGS]"));
}

TEST_F(CommandTest, ListShowsCacheAndAliases) {
  test::TempFolder home;
  test::ScopedEnvironment cache("HF_HUB_CACHE", (home / "hub").c_str());
  test::ScopedEnvironment config("XDG_CONFIG_HOME", home.path().c_str());
  EXPECT_THAT(run_program({"list"}).out, HasSubstr("quince pull"));
  home.write("hub/models--org--name/refs/main", "c0ffee");
  home.write("hub/models--org--name/snapshots/c0ffee/m.gguf", std::string(2048, 'x'));
  home.write("quince/aliases", "mine = org/name\nother = org/absent\n");
  ProgramResult text = run_program({"list"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, ContainsRegex("org/name +2.0 KB  gguf"));
  EXPECT_THAT(text.out, ContainsRegex("mine +org/name\n"));
  EXPECT_THAT(text.out, ContainsRegex("other +org/absent  \\(not pulled\\)"));
  const json::object object = parse_object(run_program({"list", "--json"}).out);
  EXPECT_EQ(object.at("models").at(0).at("bytes"), 2048);
  EXPECT_EQ(object.at("alias_file").as_string(), (home / "quince/aliases").string().c_str());
  home.write("quince/aliases", "nonsense\n");
  expect_refused(run_program({"list"}), 2, {"quince/aliases", "line 1"});
}

TEST_F(CommandTest, WrongFlags) {
  std::string m = model();
  expect_refused(run_program({"run"}), 2, {"MODEL"});
  expect_refused(run_program({"run", m, "hi", "--tmep", "1"}), 2, {"--tmep", "--temp?"});
  expect_refused(run_program({"run", m, "hi", "--temp", "hot"}), 2, {"--temp", "hot"});
  expect_refused(
      run_program({"run", m, "hi", "--top-p", "1.5"}),
      2,
      {"--top-p 1.5: want a number from 0 to 1"});
  expect_refused(
      run_program({"run", m, "hi", "--device", "tpu"}), 2, {"--device", "tpu", "cpu, gpu"});
  expect_refused(run_program({"run", m, "hi", "-n"}), 2, {"--max-tokens: its value is missing"});
  expect_refused(
      run_program({"run", m, "hi", "--temp", "-1"}), 2, {"--temp -1: want a number from 0"});
  expect_refused(run_program({"run", m, "hi", "--lora", "x"}), 2, {"--lora"});
  // Each of several names with one reason is called by its own.
  expect_refused(run_program({"run", m, "hi", "--sampling-seq", "kp"}), 2, {"--sampling-seq: "});
  expect_refused(run_program({"run", m, "hi", "--adapter-path", "x"}), 2, {"--adapter-path: LoRA"});
  expect_refused(run_program({"run", m, "hi", "--lora", "x"}), 2, {"--lora", "LoRA"});
  expect_refused(run_program({"run", m, "hi", "--kv-bits", "3"}), 2, {"--kv-bits 3"});
  expect_refused(
      run_program({"run", m, "hi", "--kv-bits", "4", "-ctk", "f16"}), 2, {"--kv-bits 4", "f16"});
  expect_refused(
      run_program({"run", m, "hi", "-ctv", "q8_0", "--kernels", "mlx"}),
      2,
      {"head_dim 16", "8 bits", "use f16"});
  expect_refused(run_program({"run", m, "hi", "--kv-group-size", "64"}), 2, {"groups of 32"});
  expect_refused(run_program({"run", m, "hi", "--raw", "--system", "s"}), 2, {"--system", "--raw"});
  expect_refused(
      run_program({"run", m, "hi", "--kernels", "native", "--dtype", "f32"}), 2, {"--dtype f32"});
  expect_refused(run_program({"run", m, "hi", "there"}), 2, {"'there'"});
  expect_refused(run_program({"run", m, "hi", "--eos-token", "<nope>"}), 2, {"--eos-token <nope>"});
  expect_refused(run_program({"bench", m, "-b", "0"}), 2, {"--batch", "0"});
  expect_refused(run_program({"inspect", m, "--kv", "q5"}), 2, {"--kv", "q5"});
  expect_refused(run_program({"convert", m, "/tmp/x", "--q-bits", "7"}), 2, {"--q-bits 7"});
  expect_refused(
      run_program({"convert", m, "/tmp/x", "--q-bits", "4", "-d"}),
      2,
      {"--dequantize", "--q-bits"});
}

TEST_F(CommandTest, MissingModels) {
  for (const char* command : {"inspect", "bench"}) {
    expect_refused(run_program({command, "/no/such/model.gguf"}), 2, {"/no/such/model.gguf"});
  }
  expect_refused(run_program({"run", "/no/such/model.gguf", "hi"}), 2, {"/no/such/model.gguf"});
  expect_refused(
      run_program({"convert", "/no/such/model.gguf", *folder_ / "x"}), 2, {"/no/such/model.gguf"});
}

TEST_F(CommandTest, LlamaCppSpellings) {
  ProgramResult result =
      run_program({"run", "-m", model(), "-p", "hi", "-n",     "3",    "-ngl", "0",    "-fa",
                   "on",  "-t", "1",     "-s", "1",  "--json", "-ctk", "f32",  "-ctv", "f32"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(parse_object(result.out).at("generated_tokens"), 3);
  EXPECT_THAT(result.err, HasSubstr("--flash-attn"));
}

TEST_F(CommandTest, RunJson) {
  ProgramResult result = run_program({"run", model(), "hello", "--temp", "0", "-n", "5", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  json::object object = parse_object(result.out);
  EXPECT_EQ(object.at("token_ids").as_array().size(), 5u);
  EXPECT_EQ(object.at("finish_reason"), "length");
  EXPECT_EQ(object.at("generated_tokens"), 5);
  // "u: hello\na: "
  EXPECT_EQ(object.at("prompt_tokens"), 12);
  EXPECT_GT(object.at("timings").at("prompt_seconds").as_double(), 0.0);
  EXPECT_GT(object.at("peak_memory_bytes").to_number<double>(), 0.0);
  for (const char* key : {"model", "text", "seed", "cached_tokens"}) {
    EXPECT_TRUE(object.contains(key)) << key;
  }
}

TEST_F(CommandTest, RunTakesThePromptFromEverywhere) {
  auto prompt_tokens = [&](std::vector<std::string> extra, const std::string& input) {
    std::vector<std::string> arguments{"run", model(), "--raw", "-n", "1", "--json"};
    arguments.insert(arguments.end(), extra.begin(), extra.end());
    ProgramResult result = run_program(arguments, input);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.status == 0 ? parse_object(result.out).at("prompt_tokens").as_int64() : -1;
  };
  std::string file = folder_->write("prompt.txt", "123456\n");
  EXPECT_EQ(prompt_tokens({"abc"}, "ignored"), 3);
  EXPECT_EQ(prompt_tokens({"-p", "abcd"}, ""), 4);
  EXPECT_EQ(prompt_tokens({}, "abcde"), 5);
  EXPECT_EQ(prompt_tokens({"--file", file}, ""), 7);
  EXPECT_EQ(prompt_tokens({"abc", "--file", file}, ""), 3 + 2 + 7);
  EXPECT_EQ(prompt_tokens({"--file", "-"}, "ab"), 2);
  EXPECT_EQ(prompt_tokens({"--", "--temp"}, ""), 6);
}

// Neither read, which could wait for ever, nor passed over in silence.
TEST_F(CommandTest, UnreadInputIsRemarkedUpon) {
  const std::vector<std::string> asked{"run", model(), "hi", "-n", "1"};
  EXPECT_THAT(run_program(asked, "a file").err, HasSubstr("-f - "));
  EXPECT_EQ(run_program(asked, "").err, "");
  std::vector<std::string> quiet = asked;
  quiet.emplace_back("-q");
  EXPECT_EQ(run_program(quiet, "a file").err, "");
}

TEST_F(CommandTest, EmptyAndBinaryPrompts) {
  expect_refused(run_program({"run", model()}, ""), 2, {"standard input is empty"});
  expect_refused(
      run_program({"run", model()}, "ab\xff\xfe"), 2, {"standard input", "UTF-8", "offset 2"});
  expect_refused(run_program({"run", model(), "-f", "/no/file"}), 2, {"/no/file"});
}

TEST_F(CommandTest, TheSameSeedGivesTheSameText) {
  auto text = [&](const char* seed) {
    ProgramResult result =
        run_program({"run", model(), "x", "--temp", "1.5", "-n", "20", "--json", "--seed", seed});
    return std::string(parse_object(result.out).at("text").as_string());
  };
  EXPECT_EQ(text("7"), text("7"));
  EXPECT_NE(text("7"), text("8"));
}

TEST_F(CommandTest, StreamedTextEqualsJson) {
  std::vector<std::string> arguments{"run", model(), "x", "--temp", "0", "-n", "12"};
  ProgramResult streamed = run_program(arguments);
  arguments.emplace_back("--json");
  std::string text(parse_object(run_program(arguments).out).at("text").as_string());
  EXPECT_EQ(streamed.out, text.ends_with('\n') ? text : text + "\n");
  EXPECT_EQ(streamed.err, "") << "no notes, no speed line where there is no terminal";
}

TEST_F(CommandTest, VerboseTellsSpeedAndMemory) {
  ProgramResult result = run_program({"run", model(), "x", "-n", "3", "-v"});
  EXPECT_THAT(result.err, HasSubstr("prompt tokens"));
  EXPECT_THAT(result.err, HasSubstr("peak memory"));
  EXPECT_THAT(result.err, HasSubstr("first token"));
}

TEST_F(CommandTest, StopTextAndEndToken) {
  ProgramResult all = run_program({"run", model(), "x", "--temp", "0", "-n", "8", "--json"});
  json::array ids = parse_object(all.out).at("token_ids").as_array();
  std::string third = std::to_string(ids.at(2).as_int64());
  ProgramResult ended =
      run_program({"run", model(), "x", "--temp", "0", "-n", "8", "--json", "--eos-token", third});
  json::object object = parse_object(ended.out);
  EXPECT_EQ(object.at("finish_reason"), "stop");
  EXPECT_LT(object.at("token_ids").as_array().size(), 3u);
  ProgramResult ignored = run_program(
      {"run",
       model(),
       "x",
       "--temp",
       "0",
       "-n",
       "8",
       "--json",
       "--eos-token",
       third,
       "--ignore-eos"});
  // The end token never comes: the likeliest other one does.
  const json::array others = parse_object(ignored.out).at("token_ids").as_array();
  ASSERT_EQ(others.size(), 8u);
  EXPECT_EQ(others.at(0), ids.at(0));
  EXPECT_EQ(std::count(others.begin(), others.end(), ids.at(2)), 0);
}

TEST_F(CommandTest, LogprobsInJson) {
  const std::vector<std::string> asked{"run", model(), "x", "--temp", "0", "-n", "4", "--logprobs"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = asked;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  expect_refused(with({"3"}), 2, {"--logprobs 3", "--json"});
  expect_refused(with({"1001", "--json"}), 2, {"--logprobs 1001"});
  const json::object answer = parse_object(with({"3", "--json"}).out);
  const json::array& ids = answer.at("token_ids").as_array();
  const json::array& content = answer.at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const json::array& top = content.at(i).at("top_logprobs").as_array();
    ASSERT_EQ(top.size(), 3u);
    EXPECT_EQ(content.at(i).at("id"), ids.at(i));
    EXPECT_EQ(top.at(0).at("id"), ids.at(i)) << "greedy takes the likeliest";
    EXPECT_LE(content.at(i).at("logprob").to_number<double>(), 0.0);
    EXPECT_GE(
        top.at(0).at("logprob").to_number<double>(), top.at(1).at("logprob").to_number<double>());
    EXPECT_TRUE(content.at(i).at("token").is_string());
  }
  const json::object bare = parse_object(with({"0", "--json"}).out);
  EXPECT_TRUE(bare.at("logprobs").at("content").at(0).at("top_logprobs").as_array().empty());
  EXPECT_FALSE(parse_object(run_program({"run", model(), "x", "-n", "1", "--json"}).out)
                   .contains("logprobs"));
}

TEST_F(CommandTest, EveryWayOfSamplingRuns) {
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--typical-p", "0.8", "--top-nsigma", "1.5", "--min-keep", "2"},
           {"--xtc-probability", "1", "--xtc-threshold", "0.001"},
           {"--mirostat", "1", "--mirostat-lr", "0.2", "--mirostat-ent", "3"},
           {"--mirostat", "2"},
           {"--presence-penalty", "1", "--frequency-penalty", "1", "--repeat-last-n", "-1"},
           {"--dry-multiplier", "0.8", "--dry-base", "2", "--dry-allowed-length", "1"},
           {"--dry-multiplier", "0.8", "--dry-sequence-breaker", "none"},
           {"--dynatemp-range", "0.5", "--dynatemp-exp", "2"},
           {"--samplers", "top_k;temperature", "--min-tokens", "3"}}) {
    std::vector<std::string> arguments{"run", model(), "x", "-n", "6", "--json", "--ignore-eos"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_program(arguments);
    ASSERT_EQ(result.status, 0) << more.front() << ": " << result.err;
    EXPECT_EQ(parse_object(result.out).at("token_ids").as_array().size(), 6u) << more.front();
  }
}

TEST_F(CommandTest, BiasedAndForbiddenTokens) {
  const auto ids = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"run", model(), "x", "--temp", "0", "-n", "4", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return parse_object(result.out).at("token_ids").as_array();
  };
  EXPECT_EQ(ids({"-l", "65+1e6"}), (json::array{65, 65, 65, 65}));
  EXPECT_EQ(ids({"-l", "65+1e6", "-l", "66+2e6"}), (json::array{66, 66, 66, 66}));
  // "AA" must not come: the second A is replaced.
  const json::array forbidden = ids({"-l", "65+1e6", "-l", "66+1e5", "--bad-words", "AA"});
  EXPECT_EQ(forbidden, (json::array{65, 66, 65, 66}));
  expect_refused(run_program({"run", model(), "x", "-l", "999999+1"}), 2, {"logit_bias", "999999"});
}

TEST_F(CommandTest, LargeContextsAreRemarkedUpon) {
  ProgramResult result = run_program({"run", model(), "x", "-n", "0", "--json", "-c", "100"});
  EXPECT_THAT(result.err, HasSubstr("trained with 64 tokens"));
  EXPECT_EQ(parse_object(result.out).at("finish_reason"), "length");
  EXPECT_EQ(parse_object(result.out).at("prompt_tokens"), 8);
}

TEST_F(CommandTest, AFullContextIsRemarkedUpon) {
  std::vector<std::string> arguments{"run", model(), "x", "--ignore-eos"};
  EXPECT_THAT(run_program(arguments).err, HasSubstr("context of 64 tokens is full"));
  arguments.insert(arguments.end(), {"-n", "3"});
  EXPECT_EQ(run_program(arguments).err, "");
}

TEST_F(CommandTest, MoreThreadsThanProcessorsAreRemarkedUpon) {
  std::vector<std::string> arguments{"run", model(), "x", "-n", "1", "-t", "1"};
  EXPECT_EQ(run_program(arguments).err, "");
  arguments.back() = std::to_string(std::thread::hardware_concurrency() + 1);
  EXPECT_THAT(run_program(arguments).err, HasSubstr("processors"));
}

TEST_F(CommandTest, ContextOverflowGivesBothNumbers) {
  expect_refused(run_program({"run", model(), "--raw", std::string(600, 'x')}), 2, {"600", "64"});
  expect_refused(
      run_program({"run", model(), "--raw", std::string(30, 'x'), "-c", "16"}), 2, {"30", "16"});
}

TEST_F(CommandTest, AModelWithoutTemplate) {
  ProgramResult result = run_program({"run", plain_model(), "hi", "-n", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("no chat template"));
  expect_refused(
      run_program({"run", plain_model(), "hi", "-q", "--system", "s"}),
      2,
      {"--system", "chat template"});
  std::string jinja = folder_->write("t.jinja", "{{ messages[0].content }}!");
  ProgramResult own =
      run_program({"run", plain_model(), "hi", "-n", "2", "--chat-template-file", jinja, "--json"});
  EXPECT_EQ(own.err, "");
  EXPECT_EQ(parse_object(own.out).at("prompt_tokens"), 3);
}

TEST_F(CommandTest, ClosedOutputIsQuiet) {
  Program program({"run", model(), "x", "--temp", "0", "-n", "40", "--ctx-size", "64"});
  ::close(program.output);
  program.output = -1;
  ProgramResult result = program.finish();
  EXPECT_EQ(result.status, 141);
  EXPECT_EQ(result.err, "");
}

TEST_F(CommandTest, InspectJson) {
  ProgramResult result = run_program({"inspect", model(), "--json", "-c", "64", "--kv", "f16,q8"});
  ASSERT_EQ(result.status, 0) << result.err;
  json::object object = parse_object(result.out);
  EXPECT_EQ(object.at("architecture"), "llama");
  EXPECT_EQ(object.at("runs"), true);
  EXPECT_EQ(object.at("context"), 64);
  EXPECT_EQ(object.at("tokenizer").at("vocab_size"), 258);
  EXPECT_EQ(object.at("chat_templates").as_array().size(), 1u);
  test::Golden golden = test::load_golden("llama");
  EXPECT_EQ(object.at("tensors").as_array().size(), golden.shapes.size());
  int64_t parameters = 0;
  for (const TensorView& tensor : golden.files().tensors) {
    parameters += tensor.size();
  }
  EXPECT_EQ(object.at("parameters"), parameters);
  EXPECT_EQ(object.at("file_bytes"), parameters * 4);
  const json::array& needs = object.at("memory").at("needs").as_array();
  ASSERT_EQ(needs.size(), 2u);
  EXPECT_EQ(
      needs[0].at("kv_bytes"), 2 * 2 * 2 * 16 * 64 * 2);  // 2 layers, 2 heads of 16, 64 tokens, f16
}

TEST_F(CommandTest, InspectText) {
  ProgramResult result = run_program({"inspect", model(), "--tensors", "--memory", "16GB"});
  EXPECT_EQ(result.status, 0);
  for (const char* part :
       {"llama",
        "fits in 16 GB: yes",
        "model.embed_tokens.weight",
        "[128, 32]",
        "F32",
        "chat templates"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  EXPECT_THAT(
      run_program({"inspect", model(), "--memory", "1MB"}).out, HasSubstr("fits in 1.0 MB: no"));
}

TEST_F(CommandTest, InspectTellsRecommendedSampling) {
  EXPECT_THAT(run_program({"inspect", model()}).out, HasSubstr("no recommendation"));
  test::TempFolder folder;
  test::write_tiny_folder(folder / "m");
  folder.write("m/generation_config.json", R"({"temperature": 0.6, "top_k": 20})");
  EXPECT_THAT(run_program({"inspect", folder / "m"}).out, HasSubstr("temperature 0.6, top_k 20"));
  EXPECT_THAT(
      run_program({"inspect", folder / "m", "--kv", "f16,q8"}).out, HasSubstr("q8 cache 8.5 KB"));
}

TEST_F(CommandTest, InspectShowsWhatCannotBeRun) {
  std::string folder = *folder_ / "other";
  ModelFiles files = test::tiny_files("llama");
  files.config["model_type"] = "mamba9";
  ConvertOptions options;
  options.out = folder;
  options.pool = std::make_shared<ThreadPool>(1);
  convert(files, options);
  ProgramResult result = run_program({"inspect", folder});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("mamba9"));
  EXPECT_THAT(result.out, HasSubstr("runs"));
  EXPECT_THAT(result.out, HasSubstr("estimated"));
  expect_refused(run_program({"run", folder, "hi"}), 2, {"mamba9"});
}

TEST_F(CommandTest, InspectShowsUnknownGgufArchitectures) {
  test::GgufBytes file;
  file.key_string("general.architecture", "mamba9").key_u32("mamba9.block_count", 4);
  file.key_u32("mamba9.embedding_length", 64).key_u32("mamba9.attention.head_count", 4);
  file.key_u32("mamba9.context_length", 4096);
  file.tensor_f32("blk.0.odd.weight", {64, 2}, 1.0f);
  std::string path = folder_->write("mamba9.gguf", file.build());
  ProgramResult result = run_program({"inspect", path, "--tensors", "--metadata"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* part :
       {"mamba9",
        "not supported",
        "blk.0.odd.weight",
        "[2, 64]",
        "4096 tokens",
        "128 (128)",
        "mamba9.block_count = 4",
        "at 4k"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  expect_refused(run_program({"run", path, "hi"}), 2, {"mamba9"});
  std::string broken = folder_->write("broken.gguf", file.build().substr(0, 100));
  expect_refused(run_program({"inspect", broken}), 2, {"broken.gguf"});
}

TEST_F(CommandTest, BenchJson) {
  ProgramResult result = run_program(
      {"bench",
       model(),
       "-p",
       "8",
       "-n",
       "4",
       "-b",
       "1,2",
       "-d",
       "0,16",
       "-r",
       "2",
       "-t",
       "1",
       "--no-bandwidth",
       "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  std::vector<json::object> rows;
  for (size_t begin = 0; begin < result.out.size();) {
    size_t end = result.out.find('\n', begin);
    rows.push_back(parse_object(result.out.substr(begin, end - begin)));
    begin = end + 1;
  }
  ASSERT_EQ(rows.size(), 6u);
  for (const json::object& row : rows) {
    const json::object& speed = row.at("tok_s").as_object();
    EXPECT_GT(speed.at("min").as_double(), 0.0);
    EXPECT_LE(speed.at("min").as_double(), speed.at("median").as_double());
    EXPECT_LE(speed.at("median").as_double(), speed.at("max").as_double());
    EXPECT_EQ(row.at("runs").as_array().size(), 2u);
  }
  EXPECT_EQ(rows[0].at("test"), "pp8");
  EXPECT_EQ(rows[2].at("batch"), 2);
  EXPECT_EQ(rows[5].at("test"), "tg4 b2 d16");
}

// Its warm-up must not compute the prompts that are measured.
TEST_F(CommandTest, BenchServeMeasuresPromptsThatAreNew) {
  const std::string m = model();
  const ProgramResult result = run_program(
      {"bench",
       "serve",
       m,
       "--requests",
       "6",
       "--clients",
       "2",
       "--prompt-tokens",
       "40",
       "--output-tokens",
       "3",
       "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  const boost::json::object row = parse_object(result.out);
  EXPECT_EQ(row.at("completed").as_int64(), 6);
  EXPECT_LT(row.at("cached_tokens").as_int64(), 6 * 8) << "here and there two begin alike";
  expect_refused(
      run_program({"bench", "serve", m, "--prompt-tokens", "40", "--kv-tokens", "41"}),
      2,
      {"--kv-tokens 41", "104 tokens"});
}

TEST_F(CommandTest, BenchRefusesWhatDoesNotFit) {
  ProgramResult result =
      run_program({"bench", model(), "-p", "100", "-n", "0", "--no-bandwidth", "--json"});
  expect_refused(result, 2, {"pp100", "64"});
  // Before the tests that fit, and before the table's head.
  expect_refused(
      run_program({"bench", model(), "-p", "8", "-n", "100", "--no-bandwidth"}), 2, {"tg100"});
}

// A model that cannot be run is not made into one that looks finished (ST-05, ST-08).
TEST_F(CommandTest, ConvertRefusesWhatCannotBeRun) {
  const auto change = [&](const char* name, auto&& edit) {
    ModelFiles files = test::tiny_files("llama");
    edit(files);
    ConvertOptions options;
    options.out = *folder_ / name;
    options.pool = std::make_shared<ThreadPool>(1);
    convert(files, options);
    return options.out.string();
  };
  const std::string incomplete = change("incomplete", [](ModelFiles& files) {
    std::erase_if(files.tensors, [](const TensorView& t) { return t.name == "lm_head.weight"; });
  });
  const std::string banana = change("banana", [](ModelFiles& files) {
    files.config["rope_scaling"] = {{"rope_type", "banana"}};
  });
  const std::string out = *folder_ / "unfinished";
  for (const auto& [folder, part] :
       {std::pair(incomplete, "lm_head.weight"), std::pair(banana, "banana")}) {
    expect_refused(run_program({"run", folder, "hi"}), 2, {part, folder});
    expect_refused(run_program({"convert", folder, out}), 2, {part, folder});
    EXPECT_FALSE(std::filesystem::exists(out));
    ProgramResult shown = run_program({"inspect", folder});
    EXPECT_EQ(shown.status, 0);
    EXPECT_THAT(shown.out, HasSubstr("runs"));
    EXPECT_THAT(shown.out, HasSubstr(part));
  }
  const std::string unknown =
      change("unknown", [](ModelFiles& files) { files.config["model_type"] = "mamba9"; });
  ProgramResult converted = run_program({"convert", unknown, out});
  EXPECT_EQ(converted.status, 0) << converted.err;
  EXPECT_THAT(converted.err, HasSubstr("\"mamba9\" is not one that Quince runs"));
}

TEST_F(CommandTest, ConvertReportsAndRefuses) {
  std::string out = *folder_ / "converted";
  ProgramResult result =
      run_program({"convert", model(), out, "--q-bits", "4", "--q-group-size", "32"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("quantized to 4-bit g32"));
  expect_refused(run_program({"convert", model(), out}), 2, {"converted", "--force"});
  EXPECT_EQ(run_program({"convert", model(), out, "--force", "--quiet"}).status, 0);
  ProgramResult answer = run_program({"run", out, "hi", "-n", "2", "--json"});
  EXPECT_EQ(answer.status, 0) << answer.err;
}

}  // namespace
}  // namespace quince
