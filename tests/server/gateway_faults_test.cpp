// Upstreams that fail in every way, a hundred times each: every client gets an answer or a clear
// error in time, breakers open and close, and nothing is left behind. QUINCE_FAULT_TIMES=700 makes
// it 21,000 requests.
#include <cstdlib>
#include <future>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "sanitizers/build.h"
#include "server/fault_upstream.h"
#include "server/gatewayed.h"
#include "system/memory.h"

namespace quince::test {

namespace {

using testing::HasSubstr;
using namespace quince::server;

constexpr double kTimeout = 0.25;  // of each phase

int times_each() {
  const char* wanted = std::getenv("QUINCE_FAULT_TIMES");
  return wanted ? std::atoi(wanted) : 100;
}

std::string config_of(const FaultUpstream& box, const std::vector<std::string>& models) {
  std::string text = "[upstreams.box]\nurl = \"" + box.url() +
                     "\"\nconnect_timeout = 0.5\nfirst_byte_timeout = 0.25\nidle_timeout = 0.25\n"
                     "breaker = { failures = 1000000 }\n";
  for (const std::string& name : models) {
    text += "[models." + name + "]\nupstreams = [\"box\"]\nconcurrency = 64\nqueue = 1000\n";
  }
  return text;
}

struct Fault {
  std::string model;
  int status;
  std::string holds;  // the answer
  bool stream = false;
};

const std::vector<Fault>& faults() {
  static const std::vector<Fault> list = {
      {"fine", 200, "\"ok\":true"},
      {"hints", 200, "\"ok\":true"},
      {"slow", 200, "\"ok\":true"},
      {"close_after", 200, "\"ok\":true"},
      {"until_close", 200, "\"ok\":true"},
      {"hang", 504, "it took too long"},
      {"reset", 502, "closed the connection"},
      {"garbage", 502, "no good HTTP"},
      {"half_head", 502, "closed the connection"},
      {"half_body", 502, "closed the connection"},
      {"hang_body", 504, "it took too long"},
      {"huge_head", 502, "no good HTTP"},
      {"many_heads", 502, "no good HTTP"},
      {"two_lengths", 502, "no good HTTP"},
      {"status500", 502, "said the upstream"},
      {"status502", 503, "said the upstream"},
      {"status503", 503, "said the upstream"},
      {"status429", 429, "said the upstream"},
      {"status401", 502, "does not accept the gateway's key"},
      {"status404", 404, "said the upstream"},
      {"page500", 502, "answered 500"},
      {"page400", 400, "answered 400"},
      {"redirect", 502, "answered 302"},
      {"fine_stream", 200, "[DONE]", true},
      {"slow_stream", 200, "[DONE]", true},
      {"done_stream", 200, "[DONE]", true},
      {"hang_stream", 200, "it took too long", true},
      {"reset_stream", 200, "closed the connection", true},
      {"cut_stream", 200, "closed the connection", true},
      {"garbage_stream", 200, "no good HTTP", true}};
  return list;
}

std::vector<std::string> fault_models() {
  std::vector<std::string> names;
  for (const Fault& fault : faults()) {
    names.push_back(fault.model);
  }
  return names;
}

// What is wrong with the answer to one request; "": nothing.
std::string wrong_with(const Answer& answer, const Fault& fault) {
  if (answer.status != fault.status || answer.body.find(fault.holds) == std::string::npos) {
    return fault.model + ": " + std::to_string(answer.status) + " " + answer.body;
  }
  if (!fault.stream) {
    const auto json = answer.json();  // throws when it is none
    return fault.status == 200 || json.as_object().contains("error") ? "" : "no error object";
  }
  std::string last;
  for (const std::string& event : events(answer.body)) {
    last = event;
    if (event != "[DONE]") {
      boost::json::parse(event);  // no half events
    }
  }
  if (answer.body.find("\"t1\"") == std::string::npos) {
    return fault.model + ": what came before is lost";
  }
  const bool said = last == "[DONE]" || boost::json::parse(last).as_object().contains("error");
  return said ? "" : fault.model + ": ended with " + last;
}

TEST(GatewayFaults, EveryClientGetsAnAnswerOrAClearErrorInTime) {
  FaultUpstream box;
  Gatewayed gateway(config_of(box, fault_models()));
  const auto ask = [&](const Fault& fault) {
    const auto begin = std::chrono::steady_clock::now();
    std::string wrong;
    try {
      Client c = gateway.client();
      c.post("/v1/chat/completions", chat(fault.model, fault.stream));
      wrong = wrong_with(c.read_answer(), fault);
    } catch (const std::exception& error) {
      wrong = fault.model + ": " + error.what();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return took.count() > 20 * kTimeout ? fault.model + ": took too long" : wrong;
  };
  for (const Fault& fault : faults()) {
    ask(fault);  // what is made once is there
  }
  ASSERT_TRUE(soon([&] { return gateway.server->connections() == 0 && box.at_once == 0; }));
  const int before = open_files();
  const int times = times_each();
  const auto ask_all = [&](int first, int last) {
    for (const Fault& fault : faults()) {
      std::vector<std::future<std::string>> clients;
      for (int i = 0; i < 8; ++i) {
        clients.push_back(std::async(std::launch::async, [&, i] {
          std::string first_wrong;
          for (int n = first + i; n < last; n += 8) {
            const std::string wrong = ask(fault);
            first_wrong = first_wrong.empty() ? wrong : first_wrong;
          }
          return first_wrong;
        }));
      }
      for (auto& client : clients) {
        EXPECT_EQ(client.get(), "");
      }
    }
  };
  ask_all(0, times / 2);
  const size_t resident = current_rss();
  ask_all(times / 2, times);
  // Under a sanitizer what was freed stays for a while.
  EXPECT_LE(current_rss(), resident + (size_t{kSanitized ? 256 : 16} << 20)) << "memory grows";
  EXPECT_TRUE(soon([&] { return open_files() <= before + 16; }))
      << before << " open files before, " << open_files() << " after " << box.requests
      << " requests";
  EXPECT_EQ(gateway.metric(R"(quince:upstream_requests_running{upstream="box"})"), 0);
  for (const std::string& name : fault_models()) {
    EXPECT_EQ(gateway.metric("quince:model_requests_running{model=\"" + name + "\"}"), 0);
  }
  for (const std::string& line : gateway.lines()) {
    EXPECT_EQ(line.find("hello"), std::string::npos) << "a prompt in the log";
  }
}

// Each API has its own shape for what goes wrong in the middle.
TEST(GatewayFaults, AStreamThatBreaksOffSaysSoInTheApisShape) {
  FaultUpstream box;
  Gatewayed gateway(config_of(box, {"cut_stream"}));
  const auto last = [&](const std::string& path) {
    const Answer answer = gateway.post(path, chat("cut_stream", true));
    EXPECT_EQ(answer.body.find("\"ind"), answer.body.find("\"index")) << "no half events";
    const size_t at = answer.body.rfind("\n\n", answer.body.size() - 3);
    return answer.body.substr(at + 2);
  };
  const auto json_of = [](const std::string& event) {
    return boost::json::parse(event.substr(event.find("data: ") + 6));
  };
  const std::string chat_error = last("/v1/chat/completions");
  EXPECT_TRUE(chat_error.starts_with("data: {")) << chat_error;
  EXPECT_EQ(json_of(chat_error).at("error").at("code"), "upstream_error");
  const std::string messages_error = last("/v1/messages");
  EXPECT_TRUE(messages_error.starts_with("event: error\ndata: {")) << messages_error;
  EXPECT_EQ(json_of(messages_error).at("type"), "error");
  EXPECT_EQ(json_of(messages_error).at("error").at("type"), "api_error");
  const std::string responses_error = last("/v1/responses");
  EXPECT_TRUE(responses_error.starts_with("event: error\ndata: {")) << responses_error;
  EXPECT_EQ(json_of(responses_error).at("type"), "error");
  EXPECT_EQ(json_of(responses_error).at("sequence_number"), 3);
}

// One of two is killed and comes back, again and again: nobody notices.
TEST(GatewayFaults, AKilledUpstreamIsLeftOutAndFoundAgain) {
  FaultUpstream stays;
  FaultUpstream dies;
  Gatewayed gateway(
      "[gateway]\nretry_share = 1\n[upstreams.stays]\nurl = \"" + stays.url() +
      "\"\n[upstreams.dies]\nurl = \"" + dies.url() +
      "\"\nconnect_timeout = 0.5\nbreaker = { failures = 2, open = 0.05, most_open = 0.1 }\n"
      "[models.fine]\nupstreams = [\"dies\", \"stays\"]\n");
  const std::string state = R"(quince:breaker_state{upstream="dies"})";
  const int rounds = 10;
  for (int round = 0; round < rounds; ++round) {
    dies.stop();
    for (int i = 0; i < 12; ++i) {
      const Answer answer = gateway.post("/v1/chat/completions", chat("fine"));
      ASSERT_EQ(answer.status, 200) << answer.body;
    }
    EXPECT_GE(gateway.metric(state), 1) << "open, or about to be tried";
    dies.restart();
    const int before = dies.requests;
    EXPECT_TRUE(soon([&] {
      EXPECT_EQ(gateway.post("/v1/chat/completions", chat("fine")).status, 200);
      return dies.requests > before && gateway.metric(state) == 0;
    }));
  }
}

TEST(GatewayFaults, WithNobodyLeftTheErrorSaysWhenToComeAgain) {
  FaultUpstream box;
  Gatewayed gateway(
      "[upstreams.box]\nurl = \"" + box.url() +
      "\"\nbreaker = { failures = 2, open = 30 }\n[models.fine]\nupstreams = [\"box\"]\n");
  box.stop();
  for (int i = 0; i < 2; ++i) {
    const Answer answer = gateway.post("/v1/chat/completions", chat("fine"));
    EXPECT_EQ(answer.status, 502);
    EXPECT_THAT(answer.body, HasSubstr("the upstream box cannot be reached"));
  }
  const Answer answer = gateway.post("/v1/chat/completions", chat("fine"));
  EXPECT_EQ(answer.status, 503);
  EXPECT_GE(std::stoi(answer.headers.at("retry-after")), 25);
  EXPECT_EQ(gateway.lines().size(), 1U);
}

// The other side may close a kept connection at the moment at which it is used again.
TEST(GatewayFaults, KeptConnectionsThatWereClosedAreNoError) {
  FaultUpstream box;
  Gatewayed gateway(config_of(box, {"close_after", "fine"}));
  Client c = gateway.client();
  for (int i = 0; i < 300; ++i) {
    c.post("/v1/chat/completions", chat(i % 3 == 0 ? "close_after" : "fine"));
    const Answer answer = c.read_answer();
    ASSERT_EQ(answer.status, 200) << i << ": " << answer.body;
  }
}

TEST(GatewayFaults, AnotherUpstreamIsAskedOnlyWhereThatIsSafe) {
  FaultUpstream bad;
  FaultUpstream good;
  const auto target = [](const std::string& name) {
    return "[models." + name +
           "]\nupstreams = [{ name = \"bad\", weight = 1000 }, { name = \"good\", model = \"fine\" "
           "}]\n";
  };
  Gatewayed gateway(
      "[gateway]\nretry_share = 1\n[upstreams.bad]\nurl = \"" + bad.url() +
      "\"\nfirst_byte_timeout = 0.1\nbreaker = { failures = 1000 }\n[upstreams.good]\nurl = \"" +
      good.url() + "\"\n" + target("status503") + target("status429") + target("status500") +
      target("hang") + target("reset"));
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("status503")).status, 200);
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("status429")).status, 200);
  EXPECT_EQ(good.requests, 2);
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("status500")).status, 502);
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("hang")).status, 504);
  EXPECT_EQ(gateway.post("/v1/chat/completions", chat("reset")).status, 502);
  EXPECT_EQ(good.requests, 2) << "those may have been worked on";
}

}  // namespace

}  // namespace quince::test
