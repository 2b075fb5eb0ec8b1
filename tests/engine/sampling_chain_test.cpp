// The whole choice: draws against the distribution that the definitions give, each parameter alone
// and many at once, the order of steps, seeds, neutral values, and the table of parameters.
#include "engine/sampling/chain.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/requests.h"
#include "engine/sampling/cpu_sampler.h"
#include "engine/sampling_reference.h"

namespace quince {
namespace {

using test::unfiltered;

using Steps = std::vector<SamplerStep>;

std::vector<float> random_row(std::mt19937& random, int size) {
  std::vector<float> row(size);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  std::generate(row.begin(), row.end(), [&] { return normal(random); });
  return row;
}

// The first draw of n samplers with n seeds after one history: independent draws from one
// distribution, which must be what the definition gives.
void expect_distribution(
    const SamplingParams& params,
    const std::vector<float>& row,
    const std::vector<int32_t>& prompt,
    const std::vector<int32_t>& output,
    const std::string& what) {
  constexpr int kDraws = 4000;
  // In each step xtc acts or not.
  std::map<int32_t, double> want;
  const double acts = params.xtc_probability;
  for (const bool excludes : {false, true}) {
    const auto choice = reference::run(reference::choice_of(row), params, prompt, output, excludes);
    for (const auto& [id, p] : reference::probabilities(choice)) {
      want[id] += p * (excludes ? acts : 1 - acts);
    }
  }
  std::map<int32_t, int> seen;
  std::vector<std::vector<float>> forced;  // rows that make the sampler choose `output`
  for (const int32_t token : output) {
    forced.emplace_back(row.size(), -INFINITY)[token] = 0.0f;
  }
  for (int i = 0; i < kDraws; ++i) {
    CpuSampler sampler(params, static_cast<uint64_t>(i));
    sampler.observe(prompt);
    for (const auto& only : forced) {
      sampler.sample(only);
    }
    ++seen[sampler.sample(row).id];
  }
  double chi = 0;
  int cells = 0;
  double rare_want = 0;  // cells with few expected draws are one
  int rare_seen = 0;
  for (const auto& [id, n] : seen) {
    ASSERT_TRUE(want.contains(id) && want.at(id) > 0) << what << ": token " << id;
  }
  for (const auto& [id, p] : want) {
    if (p * kDraws < 5) {
      rare_want += p * kDraws;
      rare_seen += seen[id];
      continue;
    }
    chi += std::pow(seen[id] - p * kDraws, 2) / (p * kDraws);
    ++cells;
  }
  if (rare_want >= 5) {
    chi += std::pow(rare_seen - rare_want, 2) / rare_want;
    ++cells;
  } else {
    ASSERT_LT(rare_seen, 30) << what;
  }
  // Mean cells - 1, variance twice that; six deviations are out of reach of chance.
  const double freedom = std::max(1, cells - 1);
  ASSERT_LT(chi, freedom + 6 * std::sqrt(2 * freedom) + 6) << what << ", " << cells << " cells";
}

struct Alone {
  const char* name;
  std::function<void(SamplingParams&)> set;
};

TEST(Chain, EachParameterAloneGivesItsDistribution) {
  const std::vector<Alone> all = {
      {"temperature", [](auto& p) { p.temperature = 0.6f; }},
      {"dynatemp", [](auto& p) { p.dynatemp_range = 0.7f, p.dynatemp_exponent = 1.5f; }},
      {"top_k", [](auto& p) { p.top_k = 7; }},
      {"top_p", [](auto& p) { p.top_p = 0.7f; }},
      {"min_p", [](auto& p) { p.min_p = 0.2f; }},
      {"typical_p", [](auto& p) { p.typical_p = 0.6f; }},
      {"top_n_sigma", [](auto& p) { p.top_n_sigma = 1.0f; }},
      {"xtc", [](auto& p) { p.xtc_probability = 0.4f, p.xtc_threshold = 0.08f; }},
      {"repetition", [](auto& p) { p.repetition_penalty = 1.8f; }},
      {"repetition of all", [](auto& p) { p.repetition_penalty = 0.6f, p.repeat_last_n = -1; }},
      {"presence", [](auto& p) { p.presence_penalty = 1.5f; }},
      {"frequency", [](auto& p) { p.frequency_penalty = -0.9f; }},
      {"dry", [](auto& p) { p.dry_multiplier = 1.5f, p.dry_allowed_length = 1; }},
      {"min_keep", [](auto& p) { p.top_p = 0.1f, p.min_keep = 6; }},
      {"nothing", [](auto&) {}},
  };
  std::mt19937 random(31);
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 9, 9, 1, 2};
  const std::vector<int32_t> output = {3, 4, 9, 1, 2};
  for (const Alone& alone : all) {
    SamplingParams params = unfiltered();
    alone.set(params);
    params.check();
    ASSERT_NO_FATAL_FAILURE(
        expect_distribution(params, random_row(random, 30), prompt, output, alone.name));
  }
}

SamplingParams random_params(std::mt19937& random) {
  const auto part = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  const auto maybe = [&](auto set) {
    if (random() % 3 == 0) {
      set();
    }
  };
  SamplingParams p = unfiltered();
  p.temperature = part(0.4f, 1.5f);
  maybe([&] { p.dynatemp_range = part(0.1f, 1); });
  maybe([&] { p.top_k = 3 + static_cast<int>(random() % 25); });
  maybe([&] { p.top_p = part(0.3f, 1); });
  maybe([&] { p.min_p = part(0.01f, 0.3f); });
  maybe([&] { p.typical_p = part(0.3f, 1); });
  maybe([&] { p.top_n_sigma = part(0.5f, 2); });
  maybe([&] { p.xtc_probability = part(0, 1), p.xtc_threshold = part(0.02f, 0.3f); });
  maybe([&] { p.min_keep = static_cast<int>(random() % 6); });
  maybe([&] { p.repetition_penalty = part(0.7f, 1.8f); });
  maybe([&] { p.repeat_last_n = static_cast<int>(random() % 8) - 1; });
  maybe([&] { p.presence_penalty = part(-1, 1); });
  maybe([&] { p.frequency_penalty = part(-1, 1); });
  maybe([&] { p.dry_multiplier = part(0.2f, 2); });
  maybe([&] { p.dry_sequence_breakers = {{9}, {1, 2}}; });
  if (random() % 2 == 0) {
    std::shuffle(p.samplers.begin(), p.samplers.end(), random);
    p.samplers.resize(5 + random() % 5);
  }
  return p;
}

TEST(Chain, ManyParametersInAnyOrderGiveTheirDistribution) {
  std::mt19937 random(32);
  for (int round = 0; round < 60; ++round) {
    const SamplingParams params = random_params(random);
    params.check();
    std::vector<int32_t> prompt(random() % 20);
    std::vector<int32_t> output(random() % 6);
    for (auto* tokens : {&prompt, &output}) {
      std::generate(
          tokens->begin(), tokens->end(), [&] { return static_cast<int32_t>(random() % 10); });
    }
    std::string order = "round " + std::to_string(round) + ":";
    for (const SamplerStep step : params.samplers) {
      order += " " + std::string(name(step));
    }
    ASSERT_NO_FATAL_FAILURE(
        expect_distribution(params, random_row(random, 30), prompt, output, order));
  }
}

TEST(Chain, DefaultOrderIsLlamaCpps) {
  SamplingParams p = unfiltered();
  p.temperature = 0.5f;
  p.repetition_penalty = 2.0f;
  p.dry_multiplier = 1.0f;
  p.top_n_sigma = 1.0f;
  p.top_k = 5;
  p.typical_p = 0.9f;
  p.top_p = 0.9f;
  p.min_p = 0.1f;
  p.xtc_probability = 0.5f;
  const Chain chain = make_chain(p);
  EXPECT_EQ(
      chain.steps,
      parse_samplers(
          "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", "samplers"));
  EXPECT_FALSE(chain.greedy);
}

TEST(Chain, NeutralStepsAndThoseBehindTheOnlyOutcomeDoNotRun) {
  EXPECT_TRUE(make_chain(unfiltered()).steps.empty());
  SamplingParams p;
  p.temperature = 0.0f;
  p.repetition_penalty = 1.1f;
  EXPECT_EQ(make_chain(p).steps, Steps{SamplerStep::penalties});
  EXPECT_TRUE(make_chain(p).greedy);
  p.temperature = 0.8f;
  p.top_k = 1;
  EXPECT_TRUE(make_chain(p).greedy);
  p.xtc_probability = 0.5f;
  EXPECT_TRUE(make_chain(p).greedy);  // one token is left before xtc
  p.top_k = 0;
  p.temperature = 0.0f;
  EXPECT_FALSE(make_chain(p).greedy);  // xtc takes the likeliest away
  p.xtc_probability = 0.0f;
  p.samplers = parse_samplers("temperature;penalties", "samplers");
  EXPECT_TRUE(make_chain(p).greedy && make_chain(p).steps.empty());  // nothing left to punish
  p.samplers = parse_samplers("top_p", "samplers");  // no temperature: it does not apply
  EXPECT_FALSE(make_chain(p).greedy);
}

TEST(Chain, GreedyIsWhatTheStepsWouldLeave) {
  std::mt19937 random(33);
  for (int round = 0; round < 300; ++round) {
    SamplingParams p = random_params(random);
    p.xtc_probability = 0.0f;
    p.dynatemp_range = 0.0f;
    p.temperature = random() % 2 == 0 ? 0.0f : 0.8f;
    p.top_k = p.temperature == 0.0f ? p.top_k : 1;
    const auto row = random_row(random, 40);
    const std::vector<int32_t> prompt = {1, 2, 3, 1, 2, 3, 4, 1, 2};
    const auto choice = reference::run(reference::choice_of(row), p, prompt, {}, false);
    CpuSampler sampler(p, 1);
    sampler.observe(prompt);
    const int32_t id = sampler.sample(row).id;
    ASSERT_TRUE(choice.contains(id)) << round;
  }
}

// Mirostat's promise: the surprise of the output comes to the target.
TEST(Chain, MirostatBringsTheSurpriseToItsTarget) {
  std::mt19937 random(34);
  for (const int version : {1, 2}) {
    for (const float tau : {2.0f, 4.0f}) {
      SamplingParams p = unfiltered();
      p.mirostat = version;
      p.mirostat_tau = tau;
      p.top_k = 1;  // filters do not apply
      CpuSampler sampler(p, 3);
      double sum = 0;
      constexpr int kSteps = 1500;
      for (int i = 0; i < kSteps; ++i) {
        std::vector<float> row(1000);
        for (size_t n = 0; n < row.size(); ++n) {
          row[n] = static_cast<float>(-1.2 * std::log(static_cast<double>(n + 1)));
        }
        std::shuffle(row.begin(), row.end(), random);
        const int32_t id = sampler.sample(row).id;
        sum -= std::log2(reference::probabilities(reference::choice_of(row)).at(id));
      }
      // The controller holds the surprise under the cut distribution at tau; under the whole row it
      // is that and what was cut off.
      EXPECT_GT(sum / kSteps, tau - 0.1) << version;
      EXPECT_LT(sum / kSteps, tau + 2.0) << version;
    }
  }
}

TEST(Chain, NeutralValuesAreBitwiseTheSameAsNone) {
  std::mt19937 random(35);
  const auto row = random_row(random, 500);
  const auto run = [&](const SamplingParams& p) {
    CpuSampler sampler(p, 9);
    sampler.observe(std::vector<int32_t>{1, 2, 3, 1, 2});
    std::vector<std::pair<int32_t, float>> out;
    for (int i = 0; i < 60; ++i) {
      const SampledToken token = sampler.sample(row);
      out.emplace_back(token.id, token.logprob);
    }
    return out;
  };
  SamplingParams base;
  base.logprobs = true;
  const auto want = run(base);
  const std::vector<Alone> neutral = {
      {"dynatemp", [](auto& p) { p.dynatemp_range = 0.0f, p.dynatemp_exponent = 3.0f; }},
      {"typical_p", [](auto& p) { p.typical_p = 1.0f; }},
      {"top_n_sigma", [](auto& p) { p.top_n_sigma = 0.0f; }},
      {"xtc", [](auto& p) { p.xtc_probability = 0.0f, p.xtc_threshold = 0.2f; }},
      {"xtc off", [](auto& p) { p.xtc_probability = 1.0f, p.xtc_threshold = 0.6f; }},
      {"repetition", [](auto& p) { p.repetition_penalty = 1.0f, p.repeat_last_n = -1; }},
      {"no window", [](auto& p) { p.repetition_penalty = 1.5f, p.repeat_last_n = 0; }},
      {"presence", [](auto& p) { p.presence_penalty = 0.0f, p.frequency_penalty = 0.0f; }},
      {"dry", [](auto& p) { p.dry_multiplier = 0.0f, p.dry_base = 3.0f; }},
      {"dry of nothing", [](auto& p) { p.dry_multiplier = 2.0f, p.dry_penalty_last_n = 0; }},
      {"mirostat", [](auto& p) { p.mirostat = 0, p.mirostat_tau = 1.0f; }},
      {"bias", [](auto& p) { p.logit_bias = {{4, 0.0f}}; }},
      {"end tokens", [](auto& p) { p.end_tokens = {3}, p.stop_tokens = {4}; }},
      {"bad words", [](auto& p) { p.bad_words = {{498, 499, 498, 499, 1}}; }},
      {"samplers",
       [](auto& p) {
         p.samplers = parse_samplers(
             "penalties,dry,top_n_sigma,top_k,typical_p,top_p,min_p,xtc,temperature", "samplers");
       }},
      {"top_logprobs", [](auto& p) { p.top_logprobs = 5; }},
  };
  for (const Alone& alone : neutral) {
    SamplingParams p = base;
    alone.set(p);
    EXPECT_EQ(run(p), want) << alone.name;
  }
  SamplingParams other = base;
  other.xtc_probability = 1.0f;
  other.xtc_threshold = 0.01f;
  EXPECT_NE(run(other), want);
}

TEST(Chain, TopLogprobsAreOfTheUnchangedRow) {
  std::mt19937 random(36);
  const auto row = random_row(random, 300);
  SamplingParams p;
  p.top_logprobs = 25;
  p.logit_bias = {{7, 50.0f}};
  const SampledToken token = CpuSampler(p, 1).sample(row);
  EXPECT_EQ(token.id, 7);
  const auto all = reference::probabilities(reference::choice_of(row));
  EXPECT_NEAR(token.logprob, std::log(all.at(7)), 1e-4);
  const auto ids =
      reference::sorted(reference::choice_of(row), [&](int32_t id) { return all.at(id); });
  ASSERT_EQ(token.top.size(), 25u);
  for (size_t i = 0; i < 25; ++i) {
    EXPECT_EQ(token.top[i].id, ids[i]);
    EXPECT_NEAR(token.top[i].logprob, std::log(all.at(ids[i])), 1e-4);
  }
  p.top_logprobs = 1000;
  EXPECT_EQ(CpuSampler(p, 1).sample(row).top.size(), 300u);
}

// ---- the table ----

std::string message(const std::function<void(SamplingParams&)>& change, int vocabulary = 0) {
  SamplingParams p;
  change(p);
  try {
    p.check(vocabulary);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(SamplingTable, EveryNumberIsCheckedAndNamed) {
  for (const NumberParam& row : number_params()) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(find_number_param(row.name), &row);
    SamplingParams p;
    row.set(p, row.low, "x");
    EXPECT_DOUBLE_EQ(row.get(p), static_cast<double>(static_cast<float>(row.low)));
    row.set(p, row.high, "x");
    for (const double bad : {row.low - 1, row.high + 1e12, std::nan("")}) {
      EXPECT_THROW(row.set(p, bad, "x"), UserError);
    }
    if (row.whole()) {
      EXPECT_THROW(row.set(p, row.low + 0.5, "x"), UserError);
    }
    const auto set_bad = [&](SamplingParams& params) {
      std::visit(
          [&](auto member) {
            params.*member = static_cast<std::decay_t<decltype(params.*member)>>(row.low - 1);
          },
          row.field);
    };
    if (row.low - 1 < row.low && static_cast<float>(row.low - 1) < static_cast<float>(row.low)) {
      const std::string text = message(set_bad);
      EXPECT_EQ(text.find(row.name), 0u) << text;
      EXPECT_NE(text.find(row.range), std::string::npos) << text;
    }
  }
  EXPECT_EQ(find_number_param("top_x"), nullptr);
}

TEST(SamplingTable, OtherParametersAreCheckedToo) {
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_EQ(
      message([](auto& p) { p.min_tokens = 5, p.max_tokens = 4; }),
      "min_tokens is 5, want at most max_tokens, 4");
  EXPECT_NE(
      message([](auto& p) { p.logit_bias = {{3, INFINITY}}; }).find("token 3"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.logit_bias = {{3, NAN}}; }), "");
  EXPECT_EQ(message([](auto& p) { p.logit_bias = {{3, -INFINITY}}; }), "");
  EXPECT_NE(
      message([](auto& p) { p.logit_bias = {{32, 1}}; }, 32).find("token 32"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.bad_words = {{1}, {}}; }).find("bad_words"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.bad_words = {{1, 40}}; }, 32).find("40"), std::string::npos);
  EXPECT_NE(
      message([](auto& p) { p.allowed_token_ids = {-1}; }, 32).find("allowed_token_ids"),
      std::string::npos);
  EXPECT_NE(
      message([](auto& p) {
        p.samplers.push_back(SamplerStep::top_k);
      }).find("top_k is there twice"),
      std::string::npos);
}

TEST(SamplingTable, NamesOfSteps) {
  EXPECT_EQ(
      parse_samplers("nucleus;top-k,temp", "--samplers"),
      (Steps{SamplerStep::top_p, SamplerStep::top_k, SamplerStep::temperature}));
  EXPECT_TRUE(parse_samplers("", "--samplers").empty());
  try {
    parse_samplers("top_k;topq", "--samplers");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(
        std::string(e.what()).find("--samplers: there is no step 'topq' (did you mean top"),
        std::string::npos)
        << e.what();
  }
  EXPECT_THROW(parse_samplers("top_k;top-k", "--samplers"), UserError);
}

}  // namespace
}  // namespace quince
