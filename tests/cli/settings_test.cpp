#include "cli/settings.h"

#include <cmath>

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
  EXPECT_EQ(with("repetition-window", "-1").sampling.repeat_last_n, -1);
  EXPECT_EQ(with("seed", "42").sampling.seed, 42u);
  EXPECT_FALSE(with("seed", "-1").sampling.seed);
  EXPECT_EQ(with("n", "9").sampling.max_tokens, 9);
  EXPECT_EQ(with("max-tokens", "-1").sampling.max_tokens, -1);
  EXPECT_EQ(with("max-tokens", "1000000000000000000").sampling.max_tokens, 2147483647);
  EXPECT_EQ(with("stop", "a\\nb").stops, std::vector<std::string>{"a\nb"});
}

// Under llama.cpp's names, or mlx-lm's.
TEST(Settings, EveryWayOfSampling) {
  EXPECT_FLOAT_EQ(with("presence-penalty", "-0.5").sampling.presence_penalty, -0.5f);
  EXPECT_FLOAT_EQ(with("frequency-penalty", "0.5").sampling.frequency_penalty, 0.5f);
  EXPECT_FLOAT_EQ(with("typical", "0.9").sampling.typical_p, 0.9f);
  EXPECT_FLOAT_EQ(with("typical-p", "0.9").sampling.typical_p, 0.9f);
  EXPECT_FLOAT_EQ(with("top-n-sigma", "1.5").sampling.top_n_sigma, 1.5f);
  EXPECT_FLOAT_EQ(with("top-nsigma", "-1").sampling.top_n_sigma, -1.0f);
  EXPECT_FLOAT_EQ(with("xtc-probability", "0.5").sampling.xtc_probability, 0.5f);
  EXPECT_FLOAT_EQ(with("xtc-threshold", "0.2").sampling.xtc_threshold, 0.2f);
  EXPECT_EQ(with("min-keep", "3").sampling.min_keep, 3);
  EXPECT_EQ(with("min-tokens-to-keep", "3").sampling.min_keep, 3);
  EXPECT_FLOAT_EQ(with("dynatemp-range", "0.4").sampling.dynatemp_range, 0.4f);
  EXPECT_FLOAT_EQ(with("dynatemp-exp", "2").sampling.dynatemp_exponent, 2.0f);
  EXPECT_EQ(with("mirostat", "2").sampling.mirostat, 2);
  EXPECT_FLOAT_EQ(with("mirostat-ent", "4").sampling.mirostat_tau, 4.0f);
  EXPECT_FLOAT_EQ(with("mirostat-lr", "0.2").sampling.mirostat_eta, 0.2f);
  EXPECT_FLOAT_EQ(with("dry-multiplier", "0.8").sampling.dry_multiplier, 0.8f);
  EXPECT_FLOAT_EQ(with("dry-base", "2").sampling.dry_base, 2.0f);
  EXPECT_EQ(with("dry-allowed-length", "4").sampling.dry_allowed_length, 4);
  EXPECT_EQ(with("dry-penalty-last-n", "100").sampling.dry_penalty_last_n, 100);
  EXPECT_EQ(with("repeat-last-n", "9").sampling.repeat_last_n, 9);
  EXPECT_EQ(with("min-tokens", "5").sampling.min_tokens, 5);
  EXPECT_EQ(with("logit-bias", "15043+1.5").sampling.logit_bias.at(15043), 1.5f);
  EXPECT_EQ(with("logit-bias", "7-2").sampling.logit_bias.at(7), -2.0f);
  EXPECT_EQ(with("logit-bias", "7-inf").sampling.logit_bias.at(7), -INFINITY);
  EXPECT_EQ(with("l", "7-1e-3").sampling.logit_bias.at(7), -1e-3f);
  EXPECT_EQ(with("bad-words", "x\\ty").bad_words, std::vector<std::string>{"x\ty"});
  EXPECT_EQ(
      with("samplers", "top_k;temp").sampling.samplers,
      (std::vector{SamplerStep::top_k, SamplerStep::temperature}));
}

TEST(Settings, DryBreakersOfTheUserReplaceTheUsualOnes) {
  const Setting& row = *find_setting("dry-sequence-breaker");
  GenerationSettings settings;
  EXPECT_EQ(settings.dry_breakers.size(), 4u);
  row.set(settings, "--x", "\\n");
  row.set(settings, "--x", "END");
  EXPECT_EQ(settings.dry_breakers, (std::vector<std::string>{"\n", "END"}));
  row.set(settings, "--x", "none");
  EXPECT_TRUE(settings.dry_breakers.empty());
  EXPECT_EQ(row.show(settings), "none");
}

TEST(Settings, EveryListCanBeEmptied) {
  for (const char* name : {"stop", "dry-breakers", "logit-bias", "bad-words"}) {
    const Setting& row = *find_setting(name);
    GenerationSettings settings;
    row.set(settings, "--x", "7-1");
    EXPECT_NE(row.show(settings), "none") << name;
    ASSERT_NE(row.clear, nullptr) << name;
    row.clear(settings);
    EXPECT_EQ(row.show(settings), "none") << name;
  }
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
           {"typical-p", "1.1"},
           {"presence-penalty", "101"},
           {"mirostat", "3"},
           {"mirostat", "1.5"},
           {"xtc-probability", "-0.1"},
           {"dry-base", "0.5"},
           {"dry-allowed-length", "-1"},
           {"min-keep", "-1"},
           {"logit-bias", "5"},
           {"logit-bias", "x+1"},
           {"logit-bias", "-5+1"},
           {"logit-bias", "5+inf"},
           {"bad-words", ""},
           {"samplers", "top_x"},
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
  EXPECT_FLOAT_EQ(params.min_p, 0);
}

// Gemma 3 says top_k and top_p and means temperature 1, not ours.
TEST(GenerationConfig, ARecipeIsTakenWhole) {
  SamplingParams params;
  auto config =
      boost::json::parse(R"({"do_sample": true, "top_k": 64, "top_p": 0.95})").as_object();
  EXPECT_TRUE(apply_generation_config(config, params).empty());
  EXPECT_FLOAT_EQ(params.temperature, 1);
  EXPECT_EQ(params.top_k, 64);
  EXPECT_FLOAT_EQ(params.min_p, 0);
}

TEST(GenerationConfig, OneWithoutSamplingLeavesOurDefaults) {
  SamplingParams params;
  auto config = boost::json::parse(R"({"eos_token_id": 2, "repetition_penalty": 1.1})").as_object();
  EXPECT_TRUE(apply_generation_config(config, params).empty());
  EXPECT_FLOAT_EQ(params.temperature, SamplingParams{}.temperature);
  EXPECT_EQ(params.top_k, SamplingParams{}.top_k);
  EXPECT_FLOAT_EQ(params.min_p, SamplingParams{}.min_p);
  EXPECT_FLOAT_EQ(params.repetition_penalty, 1.1f);
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
