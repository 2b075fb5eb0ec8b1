// The program on models whose every answer is known in advance (models/script_model.h): special
// tokens, characters in pieces, end tokens, stop texts, limits, and what cannot be loaded. The
// cases are public bug reports of other runners.
#include <chrono>
#include <cstring>
#include <fstream>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "cli/run_program.h"
#include "models/script_model.h"
#include "weights/files.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using test::ProgramResult;
using test::run_program;
using test::Script;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kLine = "The quick brown fox jumps over\xf0\x9f\x91\xa9";

class KnownModels : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempFolder;
    test::write_script_model(*folder_ / "script", Script::script);
    test::write_script_model(*folder_ / "loop", Script::loop);
    test::write_script_model(*folder_ / "majority", Script::majority);
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string model(const char* name) {
    return *folder_ / name;
  }
  // A copy of the script model under a name of its own, to be changed.
  static fs::path copy(const char* name) {
    fs::copy(*folder_ / "script", *folder_ / name, fs::copy_options::recursive);
    return *folder_ / name;
  }
  static void edit(const fs::path& file, const std::function<void(json::object&)>& change) {
    json::object object = json::parse(test::read_file(file)).as_object();
    change(object);
    std::ofstream(file) << json::serialize(object);
  }

  static std::vector<std::string> greedy(
      const std::string& model, const std::string& prompt, std::vector<std::string> flags) {
    std::vector<std::string> arguments{"run", model, prompt, "--temp", "0"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return arguments;
  }
  static json::object ask(
      const std::string& model, const std::string& prompt, std::vector<std::string> flags = {}) {
    flags.emplace_back("--json");
    const ProgramResult result = run_program(greedy(model, prompt, flags));
    EXPECT_EQ(result.status, 0) << result.err;
    return result.status == 0 ? json::parse(result.out).as_object() : json::object{};
  }
  static std::string text(const json::object& answer) {
    return std::string(answer.at("text").as_string());
  }
  static void expect_refused(
      const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith("quince: "));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    for (const std::string& part : parts) {
      EXPECT_THAT(result.err, HasSubstr(part));
    }
  }

  static test::TempFolder* folder_;
};
test::TempFolder* KnownModels::folder_ = nullptr;

// The space before the first word belongs to the form, and to a token's own text.
TEST_F(KnownModels, FormsAndTokensKeepTheSpaceThatTextLoses) {
  EXPECT_EQ(text(ask(model("script"), "hi", {"-n", "3"})), "The quick br");
  EXPECT_EQ(text(ask(model("script"), "hi", {"--regex", ".{4}"})), " The");
  EXPECT_EQ(text(ask(model("script"), "hi", {"--choice", " x"})), " x");
  const json::object answer = ask(model("script"), "hi", {"-n", "3", "--logprobs", "0"});
  std::string joined;
  for (const json::value& token : answer.at("logprobs").at("content").as_array()) {
    joined += token.at("token").as_string();
  }
  EXPECT_EQ(joined, " The quick br");
}

// TOK-01
TEST_F(KnownModels, TheBeginningTokenComesOnceOrNotAtAll) {
  const auto prompt_tokens = [&](const std::string& model, const char* prompt, bool raw) {
    std::vector<std::string> flags{"-n", "0"};
    if (raw) {
      flags.emplace_back("--raw");
    }
    return ask(model, prompt, flags).at("prompt_tokens").as_int64();
  };
  EXPECT_EQ(prompt_tokens(model("script"), "hi", false), 1);
  EXPECT_EQ(prompt_tokens(model("script"), "", true), 1);
  EXPECT_EQ(prompt_tokens(model("script"), "A", true), 2);
  EXPECT_EQ(prompt_tokens(model("script"), "<s>A", true), 2);

  const fs::path none = copy("no-bos");
  edit(none / "tokenizer_config.json", [](json::object& config) {
    config.erase("bos_token");
    config.erase("add_bos_token");
  });
  edit(none / "tokenizer.json", [](json::object& tokenizer) {
    tokenizer["post_processor"] = nullptr;
  });
  EXPECT_EQ(prompt_tokens(none, "A", true), 1);
  expect_refused({"run", none, "", "--raw"}, {"the prompt is empty"});
}

// TOK-03
TEST_F(KnownModels, CharactersInPiecesComeOutWhole) {
  const json::object whole = ask(model("script"), "hi");
  EXPECT_EQ(text(whole), kLine);
  EXPECT_EQ(whole.at("finish_reason"), "stop");
  EXPECT_EQ(whole.at("generated_tokens"), 11);
  const json::object cut = ask(model("script"), "hi", {"-n", "9"});
  EXPECT_EQ(text(cut), "The quick brown fox jumps over");  // the character that was begun is not
  EXPECT_EQ(cut.at("finish_reason"), "length");
  EXPECT_EQ(cut.at("generated_tokens"), 9);
  for (int n = 1; n <= 12; ++n) {
    const std::vector<std::string> flags{"-n", std::to_string(n)};
    const ProgramResult streamed = run_program(greedy(model("script"), "hi", flags));
    EXPECT_EQ(streamed.out, text(ask(model("script"), "hi", flags)) + "\n") << n;
  }
}

// TOK-07
TEST_F(KnownModels, EveryEndTokenEnds) {
  const fs::path folder = copy("ends");
  const auto answer = [&](const char* generation_config) {
    std::ofstream(folder / "generation_config.json") << generation_config;
    const json::object object = ask(folder, "hi");
    EXPECT_EQ(object.at("finish_reason"), "stop");
    return text(object);
  };
  EXPECT_EQ(answer(R"({"eos_token_id": [2, 263]})"), "The quick brown");
  const json::object ignored = ask(folder, "hi", {"--ignore-eos", "-n", "20"});
  EXPECT_EQ(ignored.at("generated_tokens"), 20);
  EXPECT_EQ(answer(R"({"eos_token_id": 263})"), "The quick brown");
  edit(folder / "config.json", [](json::object& config) { config["eos_token_id"] = nullptr; });
  EXPECT_EQ(answer("{}"), kLine);
}

// STOP-01
TEST_F(KnownModels, StopTextsAreFoundAcrossTokens) {
  const auto stopped = [&](const std::vector<std::string>& stops) {
    std::vector<std::string> flags;
    for (const std::string& stop : stops) {
      flags.insert(flags.end(), {"--stop", stop});
    }
    const json::object object = ask(model("script"), "hi", flags);
    EXPECT_EQ(object.at("finish_reason"), "stop");
    const ProgramResult streamed = run_program(greedy(model("script"), "hi", flags));
    EXPECT_EQ(streamed.out, text(object) + (text(object).empty() ? "" : "\n"));
    return text(object);
  };
  EXPECT_EQ(stopped({"own fo"}), "The quick br");
  EXPECT_EQ(stopped({"n f", "zzz"}), "The quick brow");
  EXPECT_EQ(stopped({"brown"}), "The quick ");
  EXPECT_EQ(stopped({"jumps over"}), "The quick brown fox ");
  EXPECT_EQ(stopped({"jumps", "fox", "over", "brown"}), "The quick ");
  EXPECT_EQ(stopped({"a", "d", "ju", "fo", "zz"}), "The quick brown ");
  EXPECT_EQ(stopped({"\xf0\x9f\x91\xa9"}), "The quick brown fox jumps over");
  EXPECT_EQ(stopped({"zzz"}), kLine);
  expect_refused(greedy(model("script"), "hi", {"--stop", ""}), {"--stop", "empty"});
}

// STOP-03 and SMP-06: the limit is exact, and only the model's own end is "stop".
TEST_F(KnownModels, LimitsAreExact) {
  const auto reason = [&](const char* most) {
    return std::string(ask(model("script"), "hi", {"-n", most}).at("finish_reason").as_string());
  };
  EXPECT_EQ(reason("200"), "stop");
  EXPECT_EQ(reason("12"), "stop");
  EXPECT_EQ(reason("11"), "length");
  EXPECT_EQ(reason("2"), "length");
  EXPECT_EQ(text(ask(model("script"), "hi", {"-n", "1"})), "The");
  EXPECT_EQ(text(ask(model("script"), "hi", {"-n", "3"})), "The quick br");
  EXPECT_EQ(ask(model("script"), "hi", {"-n", "0"}).at("generated_tokens"), 0);
  for (const char* endless : {"-1", "1000000000000000000"}) {
    const json::object looped = ask(model("loop"), "hi", {"-n", endless});
    EXPECT_EQ(looped.at("generated_tokens"), 511);
    EXPECT_EQ(looped.at("finish_reason"), "length");
  }
  for (const char* bad : {"1.5", "-2", "many", "99999999999999999999"}) {
    expect_refused(greedy(model("script"), "hi", {"-n", bad}), {"--max-tokens", bad});
  }
}

// SMP-01
TEST_F(KnownModels, TemperaturesAtTheExtremes) {
  for (const char* tiny : {"0", "1e-5", "1e-30", "1e-400"}) {
    EXPECT_EQ(text(ask(model("script"), "hi", {"--temp", tiny})), kLine) << tiny;
  }
  for (const char* flag : {"--temp", "--top-p", "--min-p", "--repetition-penalty"}) {
    for (const char* bad : {"nan", "Infinity", "1e400", "-1", "0,7", "", "true"}) {
      expect_refused({"run", model("script"), "hi", std::string(flag) + "=" + bad}, {flag, bad});
    }
  }
}

// CTX-01
TEST_F(KnownModels, ThePromptFitsOrIsRefusedWithBothNumbers) {
  for (const int letters : {511, 512, 600}) {
    expect_refused(
        greedy(model("majority"), std::string(static_cast<size_t>(letters), 'A'), {}),
        {std::to_string(letters + 1), "512"});
  }
  for (const int letters : {509, 510}) {
    const json::object answer =
        ask(model("majority"), std::string(static_cast<size_t>(letters), 'A'));
    EXPECT_EQ(answer.at("generated_tokens"), 511 - letters);
    EXPECT_EQ(answer.at("finish_reason"), "length");
  }
  EXPECT_EQ(text(ask(model("majority"), "AAAAB", {"-n", "4"})), "AAAA");
  EXPECT_EQ(ask(model("majority"), "", {"-n", "1"}).at("prompt_tokens"), 1);
}

// ST-05
TEST_F(KnownModels, TiedEmbeddings) {
  json::object config = test::script_config();
  config["tie_word_embeddings"] = true;
  test::write_script_model(*folder_ / "tied-spare", Script::script, config);
  auto tensors = test::script_tensors(Script::script);
  std::erase_if(tensors, [](const auto& t) { return t.name == "lm_head.weight"; });
  test::write_script_model(*folder_ / "tied", Script::script, config, tensors);
  for (const char* name : {"tied-spare", "tied"}) {
    EXPECT_EQ(text(ask(model(name), "A", {"--raw", "-n", "4"})), "AAAA") << name;
  }
  test::write_script_model(*folder_ / "headless", Script::script, test::script_config(), tensors);
  expect_refused({"run", model("headless"), "A"}, {"lm_head.weight", "headless"});
}

// Damaged weights: no token at all is better than any.
TEST_F(KnownModels, WeightsThatAreNoNumbers) {
  auto tensors = test::script_tensors(Script::script);
  for (auto& tensor : tensors) {
    if (tensor.name == "lm_head.weight") {
      std::fill(tensor.values.begin(), tensor.values.end(), NAN);
    }
  }
  test::write_script_model(*folder_ / "nan", Script::script, test::script_config(), tensors);
  for (const char* kernels : {"native", "mlx"}) {
    for (const char* temperature : {"0", "1"}) {
      expect_refused(
          {"run", model("nan"), "hi", "--kernels", kernels, "--temp", temperature},
          {"weights are damaged"});
    }
  }
}

// GGUF-01, GGUF-04, ST-01, ST-03 as the user meets them: every command says one thing, at once, and
// leaves nothing behind. What the messages say is tested in tests/weights.
TEST_F(KnownModels, WhatCannotBeLoadedIsSaidByEveryCommand) {
  const auto gguf = [](const std::vector<uint64_t>& dims, uint64_t offset) {
    test::GgufBytes file;
    file.key_string("general.architecture", "llama");
    file.tensor_info("token_embd.weight", dims, 0, offset).data(std::string(64, 'x'));
    return file.build();
  };
  std::vector<std::pair<std::string, std::string>> broken;  // path, part of the message
  broken.emplace_back(
      folder_->write("wrap.gguf", gguf({1ull << 32, 1ull << 32}, 0)), "token_embd.weight");
  broken.emplace_back(folder_->write("offset.gguf", gguf({4, 4}, ~0ull - 31)), "token_embd.weight");
  const std::string good = gguf({4, 4}, 0);
  broken.emplace_back(
      folder_->write("cut.gguf", good.substr(0, good.size() - 1)),
      fmt::format("{} bytes are needed, {} are present", good.size(), good.size() - 1));

  const fs::path cut = copy("cut");
  fs::resize_file(cut / "model.safetensors", fs::file_size(cut / "model.safetensors") - 1);
  broken.emplace_back(cut, "model.safetensors");

  const fs::path outside = copy("outside");
  ASSERT_EQ(::mkfifo((*folder_ / "fifo.safetensors").c_str(), 0600), 0);
  std::ofstream(outside / "model.safetensors.index.json")
      << R"({"weight_map": {"model.norm.weight": "../fifo.safetensors"}})";
  broken.emplace_back(outside, "../fifo.safetensors");

  const std::string out = *folder_ / "out";
  for (const auto& [path, part] : broken) {
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"run", path, "hi"},
          {"serve", path, "--port", "0"},
          {"convert", path, out},
          {"inspect", path},
          {"bench", path, "--no-bandwidth"}}) {
      const auto start = std::chrono::steady_clock::now();
      expect_refused(arguments, {part});
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << path;
      EXPECT_FALSE(fs::exists(out));
    }
  }
}

// JSON-07: every file of a model is somebody's JSON.
TEST_F(KnownModels, FilesThatAreNestedWithoutEnd) {
  const std::string deep = R"("x":)" + std::string(100000, '[') + std::string(100000, ']');
  const std::string out = *folder_ / "out";
  for (const std::string file :
       {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}) {
    const fs::path folder = copy(("nested-" + file).c_str());
    std::string text = test::read_file(folder / file);
    const size_t begin = file == "model.safetensors" ? 8 : 0;
    ASSERT_EQ(text.at(begin), '{');
    text.insert(begin + 1, deep + ",");
    if (begin == 8) {  // how long the header is
      uint64_t size = 0;
      std::memcpy(&size, text.data(), sizeof(size));
      size += deep.size() + 1;
      std::memcpy(text.data(), &size, sizeof(size));
    }
    std::ofstream(folder / file, std::ios::binary) << text;
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"run", folder, "hi"},
          {"serve", folder, "--port", "0"},
          {"convert", folder, out}}) {
      const auto start = std::chrono::steady_clock::now();
      expect_refused(arguments, {file, "deep"});
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << file;
      EXPECT_FALSE(fs::exists(out));
    }
  }
}

}  // namespace
}  // namespace quince
