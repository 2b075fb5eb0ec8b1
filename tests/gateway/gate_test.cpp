#include "gateway/gate.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "gateway/secret.h"

namespace quince::gateway {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kSecret = "the-secret-of-alice";

Config config_of(const std::string& more = "") {
  static const std::string hash = hash_secret(kSecret);
  return parse_config(
      "[keys.alice]\nhash = \"" + hash + "\"\nrpm = 3\nmodels = [\"m\"]\n" +
          "[upstreams.a]\nurl = \"http://a:1\"\n[upstreams.b]\nurl = \"http://b:1\"\n" + more +
          "[models.m]\nupstreams = [\"a\", { name = \"b\", model = \"other\" }]\nconcurrency = 1\n"
          "queue = 1\n",
      "q.toml");
}

class GateTest : public testing::Test {
 protected:
  std::shared_ptr<const KeyConfig> alice() {
    return gate_.identify(kSecret);
  }
  const ModelConfig& model() {
    config_ = gate_.config();
    return *config_->model("m");
  }
  // The status of the refusal; 0: none.
  int refused_with(const std::string& name) {
    try {
      gate_.use_key(alice().get(), name);
      return 0;
    } catch (const Refused& refused) {
      wait_ = refused.retry_after;
      return refused.status;
    }
  }
  void fail(const std::string& upstream, int times) {
    for (int i = 0; i < times; ++i) {
      const auto choice =
          gate_.choose(model(), {upstream == "a" ? std::string("b") : std::string("a")});
      ASSERT_TRUE(choice);
      gate_.report(*choice, Outcome::not_reached, {});
    }
  }

  Time now_ = Time(seconds(1000));
  std::vector<std::string> lines_;
  Gate gate_{
      config_of(),
      {.now = [this] { return now_; },
       .log = [this](const std::string& line) { lines_.push_back(line); }}};
  std::shared_ptr<const Config> config_;
  Clock::duration wait_{};
};

TEST_F(GateTest, KnowsItsKeys) {
  ASSERT_TRUE(alice());
  EXPECT_EQ(alice()->name, "alice");
  EXPECT_FALSE(gate_.identify("somebody-elses-secret"));
  EXPECT_FALSE(gate_.identify(""));
}

TEST_F(GateTest, LimitsAndCountsByKey) {
  EXPECT_EQ(refused_with("other"), 403);
  {
    const auto use = gate_.use_key(alice().get(), "m");
    EXPECT_EQ(use->name(), "alice");
    use->add({.prompt = 10, .generated = 5});
  }
  EXPECT_EQ(refused_with("m"), 0);
  EXPECT_EQ(refused_with("m"), 0);
  EXPECT_EQ(refused_with("m"), 429);
  EXPECT_NEAR(in_seconds(wait_), 20, 1e-6);
  const std::string text = gate_.metrics_text();
  EXPECT_THAT(text, HasSubstr("quince:key_requests_total{key=\"alice\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("quince:key_tokens_total{key=\"alice\",kind=\"prompt\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("quince:key_tokens_total{key=\"alice\",kind=\"generation\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("quince:key_refused_total{key=\"alice\",reason=\"rpm\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("quince:key_refused_total{key=\"alice\",reason=\"model\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr(kSecret)));
  EXPECT_THAT(text, Not(HasSubstr("sha256")));
}

TEST_F(GateTest, AUseEndsOnceHoweverItIsSaid) {
  Config next = config_of();
  next.keys.at("alice").concurrency = 1;
  gate_.reload(next);
  auto first = gate_.use_key(alice().get(), "m");
  EXPECT_EQ(refused_with("m"), 429);
  first->done();
  first->done();
  const auto second = gate_.use_key(alice().get(), "m");
  first.reset();
  EXPECT_EQ(refused_with("m"), 429) << "the second one runs";
}

TEST_F(GateTest, PlacesAreGivenUpWithTheirObjects) {
  int told = 0;
  const auto changed = [&] { ++told; };
  auto first = gate_.enter(model(), "x", 0, changed);
  EXPECT_EQ(first->state(), Place::State::granted);
  auto second = gate_.enter(model(), "y", 0, changed);
  EXPECT_EQ(second->state(), Place::State::waiting);
  EXPECT_THROW(gate_.enter(model(), "z", 0, changed), Refused);
  EXPECT_EQ(told, 0) << "never from within";
  first.reset();
  EXPECT_EQ(second->state(), Place::State::granted);
  EXPECT_EQ(told, 1);
  EXPECT_THAT(gate_.metrics_text(), HasSubstr("quince:model_requests_running{model=\"m\"} 1\n"));
  EXPECT_THAT(gate_.metrics_text(), HasSubstr("quince:model_refused_total{model=\"m\"} 1\n"));
}

TEST_F(GateTest, LeavesOutWhatIsBrokenOrTried) {
  EXPECT_EQ(gate_.choose(model(), {"a"})->model, "other");
  EXPECT_EQ(gate_.choose(model(), {"b"})->model, "m");
  EXPECT_FALSE(gate_.choose(model(), {"a", "b"}));
  fail("a", 5);
  EXPECT_EQ(gate_.breaker("a"), Breaker::State::open);
  EXPECT_THAT(lines_, ElementsAre("upstream a: fails, and is left alone for 5 s"));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(gate_.choose(model(), {})->upstream->name, "b");
  }
  EXPECT_FALSE(gate_.has_choice(model(), {"b"}));
  EXPECT_THAT(gate_.metrics_text(), HasSubstr("quince:breaker_state{upstream=\"a\"} 2\n"));
  now_ += seconds(5);
  const auto trial = gate_.choose(model(), {"b"});
  ASSERT_TRUE(trial);
  EXPECT_FALSE(gate_.has_choice(model(), {"b"}));
  gate_.report(*trial, Outcome::answered, seconds(0.004));
  EXPECT_EQ(gate_.breaker("a"), Breaker::State::closed);
  EXPECT_EQ(lines_.back(), "upstream a: answers again");
  EXPECT_THAT(
      gate_.metrics_text(),
      HasSubstr("quince:upstream_first_byte_seconds_bucket{upstream=\"a\",le=\"0.005\"} 1\n"));
}

TEST_F(GateTest, AnUnhealthyOneIsNotAsked) {
  gate_.checked("a", false);
  gate_.checked("a", false);
  EXPECT_FALSE(gate_.has_choice(model(), {"b"}));
  gate_.checked("a", true);
  EXPECT_TRUE(gate_.has_choice(model(), {"b"}));
  EXPECT_EQ(lines_.size(), 2U);
}

TEST_F(GateTest, SaysWhenToComeAgain) {
  EXPECT_EQ(gate_.retry_after(model()), seconds(1));
  fail("a", 5);
  fail("b", 5);
  now_ += seconds(2);
  EXPECT_EQ(gate_.retry_after(model()), seconds(3));
}

TEST_F(GateTest, ReloadingKeepsWhatStays) {
  EXPECT_EQ(refused_with("m"), 0);
  fail("a", 5);
  const auto choice = gate_.choose(model(), {"a"});
  Config next = config_of("[upstreams.c]\nurl = \"http://c:1\"\n");
  next.keys.at("alice").rpm = 1;
  next.upstreams.at("b").url = "http://elsewhere:1";
  gate_.reload(next);
  EXPECT_EQ(gate_.breaker("a"), Breaker::State::open);
  EXPECT_EQ(refused_with("m"), 429);
  gate_.report(*choice, Outcome::answered, {});
  EXPECT_THAT(
      gate_.metrics_text(), HasSubstr("quince:upstream_requests_running{upstream=\"b\"} 0\n"));
  next.keys.clear();
  const auto key = alice();
  gate_.reload(next);
  EXPECT_FALSE(alice());
  try {
    gate_.use_key(key.get(), "m");
    FAIL();
  } catch (const Refused& refused) {
    EXPECT_EQ(refused.status, 401) << "taken away while the request was read";
  }
}

TEST_F(GateTest, ReloadingGrantsPlaces) {
  int told = 0;
  const auto first = gate_.enter(model(), "x", 0, [] {});
  const auto second = gate_.enter(model(), "y", 0, [&] { ++told; });
  Config next = config_of();
  next.models.at("m").concurrency = 2;
  gate_.reload(next);
  EXPECT_EQ(second->state(), Place::State::granted);
  EXPECT_EQ(told, 1);
}

TEST_F(GateTest, NoKeyNoLimits) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(gate_.use_key(nullptr, "m")->name(), "");
  }
}

}  // namespace

}  // namespace quince::gateway
