#include "gateway/config.h"

#include <cstdlib>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace quince::gateway {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kHash = "sha256:00112233445566778899aabbccddeeff:" + std::string(64, 'a');

// What is wrong with a text; "": nothing.
std::string complaint(const std::string& text) {
  try {
    parse_config(text, "q.toml", {"local"});
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

std::string with_upstream(const std::string& text) {
  return "[upstreams.box]\nurl = \"http://box:8000/v1\"\n" + text;
}

TEST(GatewayConfig, Everything) {
  const Config config =
      parse_config(
          R"(
[gateway]
deadline = 120
retries = 5
retry_share = 0.5

[keys.alice]
hash = ")" + kHash +
              R"("
concurrency = 3
rpm = 60
tpm = 100000
priority = 2
models = ["big"]

[upstreams.box]
url = "https://box.example:8443/api/v1/"
key = "sk-1"
connect_timeout = 1
first_byte_timeout = 2
idle_timeout = 3.5
total_timeout = 4
health = "/health"
health_interval = 5
breaker = { failures = 7, open = 8, most_open = 9 }

[upstreams.six]
url = "http://[::1]/v1"

[models.big]
aliases = ["gpt-4o"]
upstreams = ["box", { name = "six", weight = 3, model = "llama" }]
balance = "least-busy"
concurrency = 9
queue = 8
queue_timeout = 7
fallbacks = ["small", "local"]
fallback_on = ["context", "latency"]
latency_limit = 6

[models.small]
upstreams = ["six"]
)",
          "q.toml",
          {"local"});
  EXPECT_EQ(config.deadline, 120);
  EXPECT_EQ(config.retries, 5);
  EXPECT_EQ(config.retry_share, 0.5);
  const KeyConfig& key = config.keys.at("alice");
  EXPECT_EQ(key.name, "alice");
  EXPECT_EQ(key.concurrency, 3);
  EXPECT_EQ(key.rpm, 60);
  EXPECT_EQ(key.tpm, 100000);
  EXPECT_EQ(key.priority, 2);
  EXPECT_TRUE(key.may_use("big"));
  EXPECT_FALSE(key.may_use("small"));
  const UpstreamConfig& box = config.upstreams.at("box");
  EXPECT_TRUE(box.tls);
  EXPECT_EQ(box.host, "box.example");
  EXPECT_EQ(box.port, 8443);
  EXPECT_EQ(box.path, "/api/v1");
  EXPECT_EQ(box.key, "sk-1");
  EXPECT_EQ(box.idle_timeout, 3.5);
  EXPECT_EQ(box.breaker.most_open, 9);
  EXPECT_EQ(config.upstreams.at("six").host, "::1");
  EXPECT_EQ(config.upstreams.at("six").port, 80);
  const ModelConfig& big = *config.model("gpt-4o");
  EXPECT_EQ(big.name, "big");
  EXPECT_EQ(big.upstreams.at(1).weight, 3);
  EXPECT_EQ(big.upstreams.at(1).model, "llama");
  EXPECT_EQ(big.balance, Balance::least_busy);
  EXPECT_THAT(big.fallbacks, ElementsAre("small", "local"));
  EXPECT_FALSE(big.on_error);
  EXPECT_TRUE(big.on_context);
  EXPECT_EQ(config.model("small")->concurrency, 4);
  EXPECT_EQ(config.model("nobody"), nullptr);
}

TEST(GatewayConfig, EmptyIsFine) {
  const Config config = parse_config("", "q.toml");
  EXPECT_TRUE(config.keys.empty());
  EXPECT_TRUE(config.models.empty());
}

struct Bad {
  std::string text;
  std::string begins;  // where
  std::string holds;   // what is wrong, and what would be right
};

TEST(GatewayConfig, EveryComplaintNamesLineKeyValueAndRemedy) {
  const std::vector<Bad> cases = {
      {"\n[gateway]\ndedline = 5\n", "q.toml:3: gateway.dedline: ", "did you mean deadline?"},
      {"keyz = 1\n", "q.toml:1: keyz: ", "did you mean keys?"},
      {"[gateway]\ndeadline = \"x\"\n", "q.toml:2: gateway.deadline: ", "is 'x', want a number"},
      {"[gateway]\ndeadline = -1\n", "q.toml:2: gateway.deadline: is -1", "0.001"},
      {"[gateway]\ndeadline = nan\n", "q.toml:2: gateway.deadline: is nan", "want a number"},
      {"[upstreams.a]\nurl = \"http://a\"\nkey = [\"s3cret\"]\n",
       "q.toml:3: upstreams.a.key: is of another type",
       "a text"},
      {"[gateway]\nretries = 1.5\n", "q.toml:2: gateway.retries: is 1.5", "a whole number"},
      {"gateway = 1\n", "q.toml:1: gateway: is 1", "[gateway]"},
      {"[keys.a]\nrpm = 1\n", "q.toml:1: keys.a: ", "quince key new a"},
      {"[keys.a]\nhash = \"secret\"\n", "q.toml:2: keys.a.hash: ", "quince key hash"},
      {"[keys.a]\nhash = \"" + kHash + "\"\nrpm = -3\n", "q.toml:3: keys.a.rpm: is -3", "from 0"},
      {"[keys.a]\nhash = \"" + kHash + "\"\nmodels = \"x\"\n",
       "q.toml:3: keys.a.models: ",
       "a list"},
      {"[keys.a]\nhash = \"" + kHash + "\"\nmodels = [3]\n",
       "q.toml:3: keys.a.models: holds 3",
       "texts"},
      {"keys = { a = 3 }\n", "q.toml:1: keys.a: is 3", "a table"},
      {"[upstreams.b]\n", "q.toml:1: upstreams.b: has no url", "http://HOST"},
      {"[upstreams.b]\nurl = \"ftp://x\"\n", "q.toml:2: upstreams.b.url: is 'ftp://x'", "http://"},
      {"[upstreams.b]\nurl = \"http://\"\n", "q.toml:2: upstreams.b.url: ", "http://10.0.0.2"},
      {"[upstreams.b]\nurl = \"http://u:p@x/\"\n", "q.toml:2: upstreams.b.url: ", "key_env"},
      {"[upstreams.b]\nurl = \"http://x/?a=b\"\n", "q.toml:2: upstreams.b.url: ", "http://"},
      {"[upstreams.b]\nurl = \"http://x\"\nkey_env = \"QUINCE_NO_SUCH\"\n",
       "q.toml:3: upstreams.b.key_env: is 'QUINCE_NO_SUCH'",
       "not set"},
      {"[upstreams.b]\nurl = \"http://x\"\nkey_file = \"/no/such\"\n",
       "q.toml:3: upstreams.b.key_file: is '/no/such'",
       "cannot be read"},
      {"[upstreams.b]\nurl = \"http://x\"\nkey = \"a\"\nkey_file = \"b\"\n",
       "q.toml:1: upstreams.b: ",
       "keep one"},
      {"[upstreams.b]\nurl = \"http://x\"\nkey = \"a\\nX: y\"\n",
       "q.toml:1: upstreams.b: ",
       "header"},
      {"[upstreams.b]\nurl = \"http://x\"\nca_file = \"/no/such\"\n",
       "q.toml:3: upstreams.b.ca_file: is '/no/such'",
       "cannot be read"},
      {"[upstreams.b]\nurl = \"http://x\"\nhealth = \"x y\"\n",
       "q.toml:3: upstreams.b.health: is 'x y'",
       "/health"},
      {"[upstreams.b]\nurl = \"http://x\"\n[upstreams.b.breaker]\nopen = 5\nmost_open = 1\n",
       "q.toml:5: upstreams.b.breaker.most_open: is 1",
       "from 5"},
      {"[models.m]\nupstreams = []\n", "q.toml:2: models.m.upstreams: ", "at least one"},
      {"[models.m]\nupstreams = [\"box\"]\n",
       "q.toml:2: models.m.upstreams: 'box'",
       "[upstreams.box]"},
      {with_upstream("[models.m]\nupstreams = [{ weight = 1 }]\n"),
       "q.toml:4: models.m.upstreams",
       "name"},
      {with_upstream("[models.m]\nupstreams = [1]\n"),
       "q.toml:4: models.m.upstreams: holds 1",
       "names"},
      {with_upstream("[models.m]\nupstreams = [\"box\"]\nbalance = \"fair\"\n"),
       "q.toml:5: models.m.balance: is 'fair'",
       "least-busy"},
      {with_upstream("[models.m]\nupstreams = [\"box\"]\nfallback_on = [\"rain\"]\n"),
       "q.toml:5: models.m.fallback_on: holds 'rain'",
       "latency"},
      {with_upstream("[models.m]\nupstreams = [\"box\"]\nfallbacks = [\"locl\"]\n"),
       "q.toml:5: models.m.fallbacks: 'locl'",
       "did you mean local?"},
      {with_upstream("[models.m]\nupstreams = [\"box\"]\nfallbacks = [\"m\"]\n"),
       "q.toml:5: models.m.fallbacks: 'm'",
       "no other model"},
      {with_upstream("[models.local]\nupstreams = [\"box\"]\n"),
       "q.toml:3: models.local: ",
       "another model"},
      {with_upstream("[models.m]\nupstreams = [\"box\"]\naliases = [\"local\"]\n"),
       "q.toml:5: models.m.aliases: 'local'",
       "another model"},
      {with_upstream("[models.\"a b\"]\nupstreams = [\"box\"]\n"),
       "q.toml:3: models.a b: ",
       "without spaces"},
      {"[keys.a]\nhash = \"" + kHash + "\"\nmodels = [\"lokal\"]\n",
       "q.toml:3: keys.a.models: 'lokal' is no model here",
       "did you mean local?"},
      {"[models.local]\n", "q.toml:1: models.local.fallbacks: ", "loaded here"},
      {with_upstream("[models.m]\nupstreams = [\"box\"]\n") +
           "[models.local]\nfallbacks = [\"m\"]\nfallback_on = [\"latency\"]\n",
       "q.toml:7: models.local.fallback_on: ",
       "for upstreams"},
      {"[models.local]\nfallbacks = [\"local\"]\n",
       "q.toml:2: models.local.fallbacks: ",
       "no other model"},
      {"[models.local]\nfallbacks = [\"m\"]\nqueue = 3\n", "q.toml:3: models.local.queue: ", ""},
      {with_upstream("[models.local]\nupstreams = [\"box\"]\n"),
       "q.toml:3: models.local: 'local'",
       "another model"},
      {"a = [\n", "q.toml:1: not TOML: ", ""},
      {"[:\n", "q.toml:1: not TOML: ", ""},
      {"rpm\u015a = 1\n", "q.toml:1: not TOML: ", ""},
      {"rpm\u3020 = 1\n", "q.toml:1: not TOML: ", ""},
      {"[keys.a]\n[keys.a]\n", "q.toml:2: not TOML: ", ""}};
  for (const Bad& bad : cases) {
    const std::string message = complaint(bad.text);
    EXPECT_THAT(message, StartsWith(bad.begins)) << bad.text;
    EXPECT_THAT(message, HasSubstr(bad.holds)) << bad.text;
  }
}

TEST(GatewayConfig, AKeyMayUseAModelByAnyOfItsNames) {
  const Config config = parse_config(
      with_upstream("[models.m]\nupstreams = [\"box\"]\naliases = [\"nick\"]\n") +
          "[keys.a]\nhash = \"" + kHash + "\"\nmodels = [\"nick\", \"also-local\"]\n",
      "q.toml",
      {"local", "also-local"});
  EXPECT_THAT(config.keys.at("a").models, ElementsAre("m", "local"));
}

TEST(GatewayConfig, WhatTheModelHereFallsBackTo) {
  const Config config = parse_config(
      with_upstream("[models.m]\nupstreams = [\"box\"]\n") +
          "[models.local]\nfallbacks = [\"m\"]\nfallback_on = [\"context\"]\n",
      "q.toml",
      {"local", "also-local"});
  ASSERT_NE(config.here(), nullptr);
  EXPECT_THAT(config.here()->fallbacks, ElementsAre("m"));
  EXPECT_TRUE(config.here()->on_context);
  EXPECT_FALSE(config.here()->on_error);
  EXPECT_EQ(parse_config(with_upstream(""), "q.toml", {"local"}).here(), nullptr);
}

TEST(GatewayConfig, AKeyFromTheEnvironment) {
  ::setenv("QUINCE_TEST_UPSTREAM_KEY", "sk-env", 1);
  const Config config = parse_config(
      "[upstreams.b]\nurl = \"http://x\"\nkey_env = \"QUINCE_TEST_UPSTREAM_KEY\"\n", "q.toml");
  EXPECT_EQ(config.upstreams.at("b").key, "sk-env");
}

TEST(GatewayConfig, AFileThatIsNotThere) {
  EXPECT_THROW(read_config("/no/such/quince.toml"), UserError);
  EXPECT_THROW(read_config("/"), UserError);
}

}  // namespace

}  // namespace quince::gateway
