// quince pull as a program, against a hub on a local port.
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>

#include <boost/json.hpp>

#include "cli/run_program.h"
#include "weights/fake_hub.h"
#include "weights/files.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
using test::FakeHub;
using test::run_program;
using test::ScopedEnvironment;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Pull : public ::testing::Test {
 protected:
  Pull() {
    hub_.files["m-Q4_K_M.gguf"] = {std::string(50'000, 'q'), true};
    hub_.files["m-Q8_0.gguf"] = {std::string(90'000, 'e'), true};
  }
  fs::path snapshot() const {
    return cache_ / "models--org--name" / "snapshots" / hub_.commit;
  }
  FakeHub hub_;
  test::TempFolder cache_;
  ScopedEnvironment endpoint_{"HF_ENDPOINT", hub_.origin().c_str()};
  ScopedEnvironment cache_variable_{"HF_HUB_CACHE", cache_.path().c_str()};
  ScopedEnvironment token_{"HF_TOKEN", nullptr};
  ScopedEnvironment offline_{"HF_HUB_OFFLINE", nullptr};
};

TEST_F(Pull, PrintsThePathOfTheModel) {
  auto result = run_program({"pull", "org/name"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, (snapshot() / "m-Q4_K_M.gguf").string() + "\n");
  EXPECT_THAT(result.err, HasSubstr("org/name: "));
  EXPECT_THAT(result.err, HasSubstr("in 1 file"));
  EXPECT_EQ(test::read_file(snapshot() / "m-Q4_K_M.gguf"), hub_.files["m-Q4_K_M.gguf"].content);
  result = run_program({"pull", "org/name", "--quiet"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, IsEmpty());
  result = run_program({"pull", "org/name:q8_0", "--json"});
  const auto object = boost::json::parse(result.out).as_object();
  EXPECT_EQ(object.at("downloaded"), 90'000);
  EXPECT_EQ(object.at("commit"), boost::json::string(hub_.commit));
  EXPECT_EQ(object.at("path"), boost::json::string((snapshot() / "m-Q8_0.gguf").string()));
}

TEST_F(Pull, TokenAndAnotherFolder) {
  hub_.needs_token = "secret";
  auto result = run_program({"pull", "org/name"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("set HF_TOKEN"));
  ScopedEnvironment token("HF_TOKEN", "secret");
  test::TempFolder other;
  result = run_program({"pull", "org/name", "--cache-dir", other.path().string()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(fs::exists(other / "models--org--name"));
  EXPECT_FALSE(fs::exists(snapshot()));
  EXPECT_THAT(result.err + result.out, ::testing::Not(HasSubstr("secret")));
}

TEST_F(Pull, Mistakes) {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  for (const Case& bad : std::vector<Case>{
           {{"pull"}, "REPO"},
           {{"pull", ""}, "no REPO"},
           {{"pull", "name"}, "org/name"},
           {{"pull", "org/absent"}, "org/absent: not found at " + hub_.origin()},
           {{"pull", "org/name:Q2_K"}, "m-Q8_0.gguf"},
           {{"pull", "org/name", "--revision", "../x"}, "revision ../x"},
           {{"pull", "org/name", "--connections", "0"}, "--connections"},
           {{"pull", "org/name", "--bogus"}, "--bogus"}}) {
    const auto result = run_program(bad.arguments);
    EXPECT_EQ(result.status, 2) << bad.message;
    EXPECT_THAT(result.err, HasSubstr(bad.message));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST_F(Pull, InterruptedItGoesOnNextTime) {
  hub_.files["m-Q4_K_M.gguf"].content = std::string(20'000'000, 'q');
  hub_.failures = 2;  // the first ranges are to be asked again in 5 seconds
  hub_.retry_after = "5";
  {
    test::Program program({"pull", "org/name", "--connections", "1"});
    for (int i = 0; i < 500 && hub_.count("GET", "/resolve/") == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    program.signal(SIGINT);
    const auto result = program.finish();
    EXPECT_EQ(result.status, 130) << result.err;
    EXPECT_THAT(result.err, HasSubstr("goes on from what is there"));
  }
  EXPECT_FALSE(fs::exists(cache_ / "models--org--name" / "refs"));
  hub_.failures = 0;
  const auto result = run_program({"pull", "org/name"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(fs::file_size(snapshot() / "m-Q4_K_M.gguf"), 20'000'000u);
}

}  // namespace
}  // namespace quince
