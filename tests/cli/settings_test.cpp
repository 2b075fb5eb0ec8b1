#include "cli/settings.h"

#include <gtest/gtest.h>

#include "weights/files.h"

namespace quince::cli {
namespace {

using test::user_error;

GenerationSettings with(std::string_view name, const std::string& value) {
  GenerationSettings settings;
  const Setting* setting = find_setting(name);
  EXPECT_NE(setting, nullptr) << name;
  if (setting != nullptr) {
    setting->set(settings, "--" + std::string(name), value);
  }
  return settings;
}

TEST(Settings, EveryNameSetsItsField) {
  EXPECT_FLOAT_EQ(with("temp", "0.25").sampling.temperature, 0.25f);
  EXPECT_FLOAT_EQ(with("temperature", "0").sampling.temperature, 0.0f);
  EXPECT_FLOAT_EQ(with("top-p", "0.5").sampling.top_p, 0.5f);
  EXPECT_FLOAT_EQ(with("top_p", "0.5").sampling.top_p, 0.5f);
  EXPECT_EQ(with("--top-k", "7").sampling.top_k, 7);
  EXPECT_FLOAT_EQ(with("min-p", "0.1").sampling.min_p, 0.1f);
  EXPECT_FLOAT_EQ(with("repeat-penalty", "1.5").sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(with("repetition-window", "-1").sampling.repetition_window, -1);
  EXPECT_EQ(with("seed", "42").sampling.seed, 42u);
  EXPECT_FALSE(with("seed", "-1").sampling.seed);
  EXPECT_EQ(with("n", "9").sampling.max_tokens, 9);
  EXPECT_EQ(with("max-tokens", "-1").sampling.max_tokens, -1);
  EXPECT_EQ(with("max-tokens", "1000000000000000000").sampling.max_tokens, 2147483647);
  EXPECT_EQ(with("stop", "a\\nb").stops, std::vector<std::string>{"a\nb"});
}

TEST(Settings, BadValuesNameTheFlag) {
  for (auto [name, value] : std::vector<std::pair<const char*, const char*>>{
           {"temp", "-1"},
           {"temp", "nan"},
           {"temp", "hot"},
           {"top-p", "1.5"},
           {"top-k", "-3"},
           {"top-k", "2.5"},
           {"min-p", "2"},
           {"repetition-penalty", "0"},
           {"repetition-window", "-2"},
           {"seed", "x"},
           {"max-tokens", "-2"},
           {"stop", ""}}) {
    std::string message = user_error([&] { with(name, value); });
    EXPECT_NE(message.find("--" + std::string(name)), std::string::npos) << name << " " << value;
    EXPECT_NE(message.find(value), std::string::npos) << name << " " << value;
  }
}

TEST(Settings, ShownAsTheyAreSet) {
  GenerationSettings settings;
  for (const Setting& setting : generation_settings()) {
    EXPECT_FALSE(setting.show(settings).empty()) << setting.name;
    EXPECT_EQ(find_setting(setting.name), &setting) << "a name must find its own row";
  }
  EXPECT_EQ(find_setting("nope"), nullptr);
  EXPECT_EQ(find_setting(""), nullptr);
  EXPECT_EQ(find_setting("temp")->show(with("temp", "0")), "0 (greedy)");
}

TEST(GenerationConfig, TakesWhatIsThere) {
  SamplingParams params;
  auto config =
      boost::json::parse(
          R"({"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": null, "do_sample": true})")
          .as_object();
  EXPECT_TRUE(apply_generation_config(config, params).empty());
  EXPECT_FLOAT_EQ(params.temperature, 0.6f);
  EXPECT_FLOAT_EQ(params.top_p, 0.9f);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_FLOAT_EQ(params.min_p, SamplingParams{}.min_p);
}

TEST(GenerationConfig, NoSamplingIsGreedy) {
  SamplingParams params;
  auto config = boost::json::parse(R"({"do_sample": false, "temperature": 0.6})").as_object();
  EXPECT_TRUE(apply_generation_config(config, params).empty());
  EXPECT_EQ(params.temperature, 0.0f);
}

TEST(GenerationConfig, NonsenseIsReportedAndLeftOut) {
  SamplingParams params;
  auto config =
      boost::json::parse(R"({"temperature": -1, "top_p": "x", "top_k": 1e99})").as_object();
  EXPECT_EQ(apply_generation_config(config, params).size(), 3u);
  EXPECT_FLOAT_EQ(params.temperature, SamplingParams{}.temperature);
  EXPECT_FLOAT_EQ(params.top_p, SamplingParams{}.top_p);
  EXPECT_EQ(params.top_k, SamplingParams{}.top_k);
}

}  // namespace
}  // namespace quince::cli
