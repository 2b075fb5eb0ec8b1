#include "weights/download.h"

#include <fcntl.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <filesystem>
#include <random>
#include <string>

#include "weights/fake_hub.h"
#include "weights/files.h"
#include "weights/hub.h"
#include "weights/model_names.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
using test::FakeHub;
using test::user_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string random_bytes(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) {
    c = static_cast<char>(random());
  }
  return bytes;
}

class Download : public ::testing::Test {
 protected:
  Download() {
    hub_.files["config.json"] = {R"({"model_type":"llama"})"};
    hub_.files["tokenizer.json"] = {"{}"};
    hub_.files["model.safetensors"] = {random_bytes(100'000, 1), true};
    hub_.files["README.md"] = {"not needed"};
    options_.model = "org/name";
    options_.cache = cache_.path();
    options_.hub.endpoint = hub_.origin();
    options_.hub.retry_delay = std::chrono::milliseconds(5);
    options_.segment_bytes = 7'000;
    options_.connections = 4;
    options_.retry_delay = std::chrono::milliseconds(5);
  }

  void expect_complete(const PullResult& result, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      EXPECT_EQ(test::read_file(snapshot() / name), hub_.files.at(name).content) << name;
      EXPECT_TRUE(fs::is_symlink(snapshot() / name)) << name;
      EXPECT_TRUE(fs::read_symlink(snapshot() / name).is_relative());
      EXPECT_TRUE(fs::exists(folder() / "blobs" / hub_.etag(name))) << name;
    }
    EXPECT_EQ(test::read_file(folder() / "refs" / "main"), hub_.commit);
    for (const auto& entry : fs::recursive_directory_iterator(folder())) {
      EXPECT_EQ(entry.path().string().find("incomplete"), std::string::npos);
      EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos);
    }
    EXPECT_EQ(result.commit, hub_.commit);
  }
  fs::path folder() const {
    return cache_ / "models--org--name";
  }
  fs::path snapshot() const {
    return folder() / "snapshots" / hub_.commit;
  }
  fs::path partial(const std::string& name) const {
    return folder() / "blobs" / (hub_.etag(name) + ".incomplete");
  }
  void put_partial(const std::string& name, const std::string& bytes) {
    cache_.write(fs::relative(partial(name), cache_.path()).string(), bytes);
  }
  std::string error() {
    return user_error([&] { pull_model(options_); });
  }

  const std::vector<std::string> kAll{"config.json", "tokenizer.json", "model.safetensors"};
  FakeHub hub_;
  test::TempFolder cache_;
  PullOptions options_;
};

TEST_F(Download, FreshAndAgain) {
  const PullResult result = pull_model(options_);
  expect_complete(result, kAll);
  EXPECT_EQ(result.path, snapshot());
  EXPECT_FALSE(fs::exists(snapshot() / "README.md"));
  EXPECT_EQ(result.downloaded, result.bytes);
  EXPECT_GE(hub_.count("GET", "model.safetensors"), 15);  // ranges
  EXPECT_EQ(hub_.count("HEAD", ""), 0);

  test::ScopedEnvironment cache("HF_HUB_CACHE", cache_.path().c_str());
  EXPECT_EQ(resolve_model("org/name"), snapshot());

  hub_.forget();
  const PullResult again = pull_model(options_);
  EXPECT_EQ(again.downloaded, 0u);
  EXPECT_EQ(hub_.seen().size(), 1u);  // the listing
  expect_complete(again, kAll);
}

TEST_F(Download, OneConnectionAndHugeSegments) {
  options_.connections = 1;
  options_.segment_bytes = 1u << 30;
  expect_complete(pull_model(options_), kAll);
  EXPECT_EQ(hub_.count("GET", "model.safetensors"), 1);
}

TEST_F(Download, OneByteSegmentsInOrder) {
  hub_.files["model.safetensors"].content = random_bytes(200, 3);
  options_.segment_bytes = 1;
  options_.connections = 8;
  expect_complete(pull_model(options_), kAll);
}

TEST_F(Download, AHubThatTellsNoHashesInItsList) {
  hub_.tells_blobs = false;
  expect_complete(pull_model(options_), kAll);
  EXPECT_EQ(hub_.count("HEAD", "/resolve/"), 3);
}

TEST_F(Download, AListWithoutSizes) {
  const auto listing = parse_listing(
      R"({"sha":"a","siblings":[{"rfilename":"x","lfs":{"sha256":")" + std::string(64, '0') +
          R"("}},{"rfilename":"y","lfs":{"size":7,"sha256":")" + std::string(64, '0') + R"("}}]})",
      "r");
  EXPECT_EQ(listing.files[0].etag, "");  // complete() will ask
  EXPECT_EQ(listing.files[1].size, 7u);
}

TEST_F(Download, ContinuesAnIncompleteFile) {
  const std::string content = hub_.files["model.safetensors"].content;
  put_partial("model.safetensors", content.substr(0, 60'001));
  const PullResult result = pull_model(options_);
  expect_complete(result, kAll);
  EXPECT_EQ(result.downloaded, result.bytes - 60'001);
  for (const auto& request : hub_.seen()) {
    if (request.target.find("model.safetensors") != std::string::npos) {
      size_t first = 0;
      ASSERT_EQ(std::sscanf(request.range.c_str(), "bytes=%zu-", &first), 1);
      EXPECT_GE(first, 60'001u);
    }
  }
}

TEST_F(Download, AFinishedButUnnamedFileNeedsNoRequest) {
  put_partial("model.safetensors", hub_.files["model.safetensors"].content);
  expect_complete(pull_model(options_), kAll);
  EXPECT_EQ(hub_.count("GET", "model.safetensors"), 0);
}

TEST_F(Download, AnIncompleteFileThatIsTooLongStartsAnew) {
  put_partial("model.safetensors", random_bytes(100'001, 9));
  expect_complete(pull_model(options_), kAll);
}

TEST_F(Download, ASpoiltBeginningIsFoundByTheChecksum) {
  put_partial("model.safetensors", random_bytes(50'000, 9));
  EXPECT_THAT(error(), HasSubstr("model.safetensors: the checksum is wrong"));
  EXPECT_FALSE(fs::exists(partial("model.safetensors")));
  EXPECT_FALSE(fs::exists(folder() / "refs" / "main"));
  expect_complete(pull_model(options_), kAll);
}

TEST_F(Download, WrongChecksum) {
  hub_.wrong_sha256 = std::string(64, 'a');
  EXPECT_THAT(error(), HasSubstr("want " + hub_.wrong_sha256));
  EXPECT_FALSE(fs::exists(folder() / "blobs" / hub_.wrong_sha256));
  EXPECT_FALSE(fs::exists(folder() / "blobs" / (hub_.wrong_sha256 + ".incomplete")));
}

TEST_F(Download, WrongSmallFile) {
  // The blob id told is that of other bytes.
  HubFile file{"config.json", 3, "", "", FakeHub::git_sha1("abc")};
  file.etag = file.git_sha1;
  PartialFile good(cache_ / "good", file);
  good.append(std::as_bytes(std::span("abc", 3)));
  good.finish();
  EXPECT_EQ(test::read_file(cache_ / "good"), "abc");
  PartialFile bad(cache_ / "bad", file);
  bad.append(std::as_bytes(std::span("abd", 3)));
  EXPECT_THAT(user_error([&] { bad.finish(); }), HasSubstr("the checksum is wrong"));
  PartialFile few(cache_ / "few", file);
  few.append(std::as_bytes(std::span("ab", 2)));
  EXPECT_THAT(user_error([&] { few.finish(); }), HasSubstr("got 2 bytes, want 3"));
}

TEST_F(Download, AServerWithoutRanges) {
  hub_.ranges = false;
  expect_complete(pull_model(options_), kAll);
}

TEST_F(Download, AServerWithoutRangesStartsAnIncompleteFileAnew) {
  hub_.ranges = false;
  put_partial("model.safetensors", random_bytes(60'001, 4));  // not even its beginning
  expect_complete(pull_model(options_), kAll);
}

TEST_F(Download, AServerWithoutRangesThatBreaksOff) {
  hub_.ranges = false;
  hub_.shorts = 3;
  expect_complete(pull_model(options_), kAll);
}

TEST_F(Download, ConnectionsResetInTheMiddle) {
  hub_.resets = 5;
  expect_complete(pull_model(options_), kAll);
}

TEST_F(Download, BodiesThatEndTooEarly) {
  hub_.shorts = 5;
  expect_complete(pull_model(options_), kAll);
}

TEST_F(Download, BusyServerIsAskedAgain) {
  hub_.failures = 5;
  hub_.listing_failures = 2;
  expect_complete(pull_model(options_), kAll);
}

TEST_F(Download, AServerThatStaysBusyIsGivenUp) {
  hub_.failures = 1'000'000;
  options_.attempts = 3;
  EXPECT_THAT(error(), HasSubstr("status 503"));
  EXPECT_LE(hub_.count("GET", "/resolve/"), 30);
}

TEST_F(Download, RetryAfterIsHeeded) {
  hub_.failures = 1;
  hub_.retry_after = "1";
  const auto start = std::chrono::steady_clock::now();
  expect_complete(pull_model(options_), kAll);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(950));
}

TEST_F(Download, RetryAfterOfTheListIsHeeded) {
  hub_.listing_failures = 1;
  hub_.retry_after = "1";
  const auto start = std::chrono::steady_clock::now();
  expect_complete(pull_model(options_), kAll);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(950));
}

TEST_F(Download, AHubThatIsBusyWhenAskedForSizesIsAskedAgain) {
  hub_.tells_blobs = false;
  hub_.head_failures = 2;
  expect_complete(pull_model(options_), kAll);
}

TEST_F(Download, ARangeThatIsNeverThereIsGivenUp) {
  hub_.no_range_from = 50'000;
  EXPECT_THAT(error(), HasSubstr("status 416"));
  EXPECT_LE(hub_.count("GET", "model.safetensors"), 40);
}

// As a proxy's login page: every answer begins anew and brings a few bytes.
TEST_F(Download, APageInPlaceOfTheFileIsGivenUp) {
  hub_.page = "<html>please log in</html>";
  hub_.files = {{"model.gguf", hub_.files["model.safetensors"]}};
  EXPECT_THAT(error(), HasSubstr("connection ended after 26 of 100000 bytes"));
  EXPECT_LE(hub_.count("GET", "model.gguf"), 40);
}

// Nothing has come that could be reported, but the user may want to leave.
TEST_F(Download, ASilentHubCanBeLeft) {
  struct Stop {};
  hub_.silent = true;
  for (const bool busy : {false, true}) {
    hub_.silent = !busy;
    hub_.listing_failures = busy ? 1'000 : 0;
    hub_.retry_after = "50";
    const auto start = std::chrono::steady_clock::now();
    options_.progress = [&](const PullProgress& progress) {
      EXPECT_EQ(progress.total, 0u);
      if (std::chrono::steady_clock::now() - start > std::chrono::milliseconds(300)) {
        throw Stop{};
      }
    };
    EXPECT_THROW(pull_model(options_), Stop);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
}

TEST_F(Download, TheTokenStaysWithTheHub) {
  FakeHub store;
  store.files = hub_.files;
  hub_.store = store.origin();
  hub_.needs_token = "secret";
  options_.hub.token = "secret";
  expect_complete(pull_model(options_), kAll);
  EXPECT_GE(store.count("GET", "/store/model.safetensors"), 15);
  for (const auto& request : store.seen()) {
    EXPECT_EQ(request.authorization, "");
  }
  for (const auto& request : hub_.seen()) {
    EXPECT_EQ(request.authorization, "Bearer secret");
  }
  // Once the store's address is known, ranges go there at once.
  EXPECT_LE(hub_.count("GET", "model.safetensors"), 8);
}

// With segments of the full size four are under way and only the first of them is kept.
TEST_F(Download, ASlowLineLosesLittleWhenInterrupted) {
  hub_.files["model.safetensors"].content = std::string(40'000'000, 's');
  hub_.bytes_per_second = 500'000;
  options_.segment_bytes = PullOptions().segment_bytes;
  uint64_t received = 0;
  options_.progress = [&](const PullProgress& progress) {
    received = progress.done;
    if (received > 6'000'000) {
      throw std::runtime_error("interrupted");
    }
  };
  EXPECT_THROW(pull_model(options_), std::runtime_error);
  EXPECT_GT(fs::file_size(partial("model.safetensors")), received / 3);
}

TEST_F(Download, AStoreAddressThatRunsOutIsRenewed) {
  FakeHub store;
  store.files = hub_.files;
  store.stale_store = 1 << 30;
  hub_.store = store.origin();
  EXPECT_THAT(error(), HasSubstr("org/name"));
  store.stale_store = 0;
  hub_.keys = &store;
  for (const int connections : {1, 4, 8}) {  // several are under way with the old address
    fs::remove_all(folder());
    options_.connections = connections;
    store.requests_of_a_key = 5;
    const int key = store.key;
    expect_complete(pull_model(options_), kAll);
    EXPECT_EQ(store.key, key + 1);
  }
}

TEST_F(Download, WrongTokenAndPrivateAndGated) {
  hub_.needs_token = "secret";
  EXPECT_THAT(error(), HasSubstr("set HF_TOKEN"));
  options_.hub.token = "other";
  EXPECT_THAT(error(), HasSubstr("HF_TOKEN may read it"));
  hub_.refusal = 403;
  hub_.error_code = "GatedRepo";
  EXPECT_THAT(error(), HasSubstr("is gated: accept its terms at " + hub_.origin() + "/org/name"));
  hub_.refusal = 404;
  hub_.error_code = "RevisionNotFound";
  EXPECT_THAT(error(), HasSubstr("no such revision"));
  hub_.error_code = "RepoNotFound";
  EXPECT_THAT(error(), HasSubstr("not found at " + hub_.origin()));
}

TEST_F(Download, NoHub) {
  {
    FakeHub gone;
    options_.hub.endpoint = gone.origin();
  }
  EXPECT_THAT(error(), HasSubstr("cannot get the list of its files from http://127.0.0.1:"));
  options_.hub.endpoint = "http://hub.invalid";
  EXPECT_THAT(error(), HasSubstr("http://hub.invalid:80"));
}

TEST_F(Download, NamesThatWouldLeaveTheCache) {
  for (const char* name :
       {"../evil.json", "a/../../evil.json", "/etc/evil.json", "a//b.json", "x\\y.json", ""}) {
    const std::string text = boost::json::serialize(boost::json::object{
        {"sha", "abc"}, {"siblings", boost::json::array{{{"rfilename", name}}}}});
    EXPECT_THAT(user_error([&] { parse_listing(text, "org/name"); }), HasSubstr("bad file name"))
        << name;
  }
  EXPECT_THAT(
      user_error([] { parse_listing(R"({"sha":"../x","siblings":[]})", "r"); }),
      HasSubstr("no commit id"));
  EXPECT_THAT(
      user_error([] {
        parse_listing(
            R"({"sha":"a","siblings":[{"rfilename":"m","lfs":{"sha256":"../../x"}}]})", "r");
      }),
      HasSubstr("no sound SHA-256"));
  EXPECT_THAT(user_error([] { parse_listing("[]", "r"); }), HasSubstr("JSON object"));
  EXPECT_THAT(user_error([] { parse_listing(R"({"sha":"a"})", "r"); }), HasSubstr("list of files"));
  EXPECT_THAT(
      user_error([] { parse_listing(R"({"sha":"a","siblings":[5]})", "r"); }),
      HasSubstr("bad file name"));
}

TEST_F(Download, BadNamesAndRevisions) {
  for (const char* name : {"", "name", "a/b/c", "../b", "a/..", "org/na me", "org/name:", "-a/b"}) {
    options_.model = name;
    EXPECT_THAT(error(), HasSubstr("org/name")) << name;
  }
  options_.model = "org/name";
  for (const char* revision : {"", "../x", "a b", "/x", "x/", "a//b"}) {
    options_.revision = revision;
    EXPECT_THAT(error(), HasSubstr("revision")) << revision;
  }
  EXPECT_TRUE(hub_.seen().empty());
}

TEST_F(Download, StoppedByTheUserAndContinued) {
  struct Stop {};
  options_.connections = 1;
  options_.progress = [](const PullProgress& progress) {
    if (progress.done > 20'000) {
      throw Stop{};
    }
  };
  // Slow enough that a progress report falls in between: a hundred small ranges.
  options_.segment_bytes = 100;
  EXPECT_THROW(pull_model(options_), Stop);
  const auto size = fs::file_size(partial("model.safetensors"));
  EXPECT_GT(size, 0u);
  EXPECT_LT(size, 100'000u);
  EXPECT_FALSE(fs::exists(folder() / "refs" / "main"));
  options_.progress = nullptr;
  options_.segment_bytes = 7'000;
  const PullResult result = pull_model(options_);
  expect_complete(result, kAll);
  EXPECT_LE(result.downloaded, 100'000u - size);
}

TEST_F(Download, ProgressNeverFallsAndEndsAtTheTotal) {
  std::vector<PullProgress> reports;
  options_.progress = [&](const PullProgress& progress) { reports.push_back(progress); };
  const PullResult result = pull_model(options_);
  ASSERT_FALSE(reports.empty());
  for (size_t i = 1; i < reports.size(); ++i) {
    EXPECT_GE(reports[i].done, reports[i - 1].done);
  }
  EXPECT_EQ(reports.back().done, result.bytes);
  EXPECT_EQ(reports.back().total, result.bytes);
}

TEST_F(Download, WaitsForAnotherToolsLock) {
  const auto path =
      cache_ / (".locks/models--org--name/" + hub_.etag("model.safetensors") + ".lock");
  fs::create_directories(path.parent_path());
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  bool waited = false;
  options_.progress = [&](const PullProgress& progress) {
    if (progress.file.find("waiting") != std::string::npos && !waited) {
      waited = true;
      ::flock(fd, LOCK_UN);
    }
  };
  expect_complete(pull_model(options_), kAll);
  EXPECT_TRUE(waited);
  ::close(fd);
}

TEST_F(Download, OneGgufOfMany) {
  hub_.files = {
      {"m-Q4_K_M.gguf", {"four", true}},
      {"m-Q4_K_S.gguf", {"small", true}},
      {"m-Q8_0.gguf", {"eight", true}},
      {"mmproj-f16.gguf", {"image", true}},
      {"big/m-BF16-00001-of-00002.gguf", {"one", true}},
      {"big/m-BF16-00002-of-00002.gguf", {"two", true}}};
  EXPECT_THAT(pull_model(options_).files, ElementsAre("m-Q4_K_M.gguf"));
  options_.model = "org/name:q8_0";
  const PullResult q8 = pull_model(options_);
  EXPECT_EQ(q8.path, snapshot() / "m-Q8_0.gguf");
  EXPECT_EQ(test::read_file(q8.path), "eight");
  options_.model = "org/name:BF16";
  const PullResult split = pull_model(options_);
  EXPECT_THAT(
      split.files, ElementsAre("big/m-BF16-00001-of-00002.gguf", "big/m-BF16-00002-of-00002.gguf"));
  EXPECT_EQ(test::read_file(snapshot() / split.files[1]), "two");
  options_.model = "org/name:Q2_K";
  EXPECT_THAT(error(), HasSubstr("m-Q4_K_M.gguf, m-Q4_K_S.gguf, m-Q8_0.gguf"));

  test::ScopedEnvironment cache("HF_HUB_CACHE", cache_.path().c_str());
  EXPECT_EQ(resolve_model("org/name:Q8_0"), snapshot() / "m-Q8_0.gguf");
  EXPECT_EQ(resolve_model("org/name"), snapshot() / "m-Q4_K_M.gguf");  // as pulled without a quant
}

TEST(NeededFiles, Safetensors) {
  const std::vector<std::string> names{
      "README.md",
      "config.json",
      "consolidated.safetensors",
      "generation_config.json",
      "model-00001-of-00002.safetensors",
      "model-00002-of-00002.safetensors",
      "model.safetensors.index.json",
      "onnx/model.onnx",
      "original/params.json",
      "tokenizer.json",
      "tokenizer.model",
      "chat_template.jinja",
      "additional_chat_templates/tool.jinja",
      "pytorch_model.bin"};
  EXPECT_THAT(
      needed_files(names, "", "r"),
      ElementsAre(
          "config.json",
          "generation_config.json",
          "model.safetensors.index.json",
          "tokenizer.json",
          "chat_template.jinja",
          "additional_chat_templates/tool.jinja",
          "model-00001-of-00002.safetensors",
          "model-00002-of-00002.safetensors"));
  EXPECT_THAT(
      user_error([] { needed_files({"pytorch_model.bin", "config.json"}, "", "org/x"); }),
      HasSubstr("org/x: has neither"));
  EXPECT_THAT(user_error([] { needed_files({}, "", "org/x"); }), HasSubstr("org/x"));
  EXPECT_THAT(
      user_error([] { needed_files({"m-Q4_0-00001-of-00002.gguf"}, "", "org/x"); }),
      HasSubstr("lacks the part m-Q4_0-00002-of-00002.gguf"));
}

TEST(HubAccess, Environment) {
  test::ScopedEnvironment offline("HF_HUB_OFFLINE", nullptr);
  test::ScopedEnvironment token("HF_TOKEN", "t");
  {
    test::ScopedEnvironment endpoint("HF_ENDPOINT", "https://mirror.example/");
    EXPECT_EQ(HubAccess::from_environment().endpoint, "https://mirror.example");
    EXPECT_EQ(HubAccess::from_environment().token, "t");
  }
  {
    test::ScopedEnvironment endpoint("HF_ENDPOINT", "ftp://x");
    EXPECT_THAT(user_error([] { HubAccess::from_environment(); }), HasSubstr("HF_ENDPOINT"));
  }
  {
    test::ScopedEnvironment bad("HF_TOKEN", "a\r\nX: y");
    EXPECT_THAT(user_error([] { HubAccess::from_environment(); }), HasSubstr("HF_TOKEN"));
  }
  test::ScopedEnvironment now("HF_HUB_OFFLINE", "1");
  EXPECT_THAT(user_error([] { HubAccess::from_environment(); }), HasSubstr("HF_HUB_OFFLINE"));
}

TEST(Url, OriginsAndPaths) {
  EXPECT_EQ(url_origin("https://a.b/x?y"), "https://a.b:443");
  EXPECT_EQ(url_origin("http://A.b:81/"), "http://a.b:81");
  EXPECT_EQ(url_origin("file:///etc/passwd"), "");
  EXPECT_EQ(url_origin("nonsense"), "");
  EXPECT_EQ(url_path("a b/c%+é"), "a%20b/c%25%2B%C3%A9");
}

}  // namespace
}  // namespace quince
