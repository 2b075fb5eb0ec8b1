// The commands from outside: exit statuses, messages, output.
#include <gmock/gmock.h>
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
using testing::HasSubstr;
using testing::Not;
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
    const ProgramResult& result, int status, const std::vector<const char*>& parts) {
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("quince: "));
  for (const char* part : parts) {
    EXPECT_THAT(result.err, HasSubstr(part));
  }
}

TEST_F(CommandTest, VersionAndHelp) {
  ProgramResult version = run_program({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.out, StartsWith("quince "));
  for (std::vector<std::string> arguments :
       {std::vector<std::string>{"--help"}, {"help"}, {"-h"}}) {
    ProgramResult help = run_program(arguments);
    EXPECT_EQ(help.status, 0);
    for (const char* name : {"run", "pull", "inspect", "convert", "bench"}) {
      EXPECT_THAT(help.out, HasSubstr(name));
    }
  }
  for (const char* name : {"run", "pull", "inspect", "convert", "bench"}) {
    EXPECT_EQ(run_program({name, "--help"}).status, 0) << name;
    EXPECT_EQ(run_program({"help", name}).out, run_program({name, "--help"}).out);
  }
  EXPECT_EQ(run_program({}).status, 2);
}

TEST_F(CommandTest, WrongCommands) {
  expect_refused(run_program({"rnu", "x"}), 2, {"rnu", "did you mean run?"});
  expect_refused(run_program({"frobnicate"}), 2, {"frobnicate: unknown command"});
  expect_refused(run_program({"--frob"}), 2, {"--frob"});
}

TEST_F(CommandTest, WrongFlags) {
  std::string m = model();
  expect_refused(run_program({"run"}), 2, {"MODEL"});
  expect_refused(run_program({"run", m, "hi", "--tmep", "1"}), 2, {"--tmep", "--temp?"});
  expect_refused(run_program({"run", m, "hi", "--temp", "hot"}), 2, {"--temp", "hot"});
  expect_refused(run_program({"run", m, "hi", "--top-p", "1.5"}), 2, {"--top-p", "1.5", "0 and 1"});
  expect_refused(
      run_program({"run", m, "hi", "--device", "tpu"}), 2, {"--device", "tpu", "cpu, gpu"});
  expect_refused(run_program({"run", m, "hi", "--mlock"}), 2, {"--mlock"});
  expect_refused(run_program({"run", m, "hi", "--lora", "x"}), 2, {"--lora", "LoRA"});
  expect_refused(run_program({"run", m, "hi", "--kv-bits", "4"}), 2, {"--kv-bits"});
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
  arguments.push_back("--json");
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
  EXPECT_EQ(parse_object(ignored.out).at("token_ids"), ids);
}

TEST_F(CommandTest, LargeContextsAreRemarkedUpon) {
  ProgramResult result = run_program({"run", model(), "x", "-n", "0", "--json", "-c", "100"});
  EXPECT_THAT(result.err, HasSubstr("trained with 64 tokens"));
  EXPECT_EQ(parse_object(result.out).at("finish_reason"), "length");
  EXPECT_EQ(parse_object(result.out).at("prompt_tokens"), 8);
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

TEST_F(CommandTest, BenchRefusesWhatDoesNotFit) {
  ProgramResult result =
      run_program({"bench", model(), "-p", "100", "-n", "0", "--no-bandwidth", "--json"});
  expect_refused(result, 2, {"pp100", "64"});
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
