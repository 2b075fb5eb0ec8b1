// Slots through a real socket: saved, brought back and erased as llama-server does it, though keys
// and values are shared by all.
#include <filesystem>
#include <fstream>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/served.h"
#include "weights/files.h"

namespace quince::test {

namespace {

namespace json = boost::json;
using testing::HasSubstr;

// So many tokens that are not the same everywhere, after the first.
std::vector<int> tokens_of(int count, int seed) {
  std::vector<int> tokens{kScriptBos};
  while (static_cast<int>(tokens.size()) < count) {
    tokens.push_back(3 + (seed + 7 * static_cast<int>(tokens.size())) % 200);
  }
  return tokens;
}

std::string completion(const std::vector<int>& prompt, int slot, int tokens = 4) {
  return json::serialize(json::object{
      {"prompt", json::value_from(prompt)},
      {"n_predict", tokens},
      {"ignore_eos", true},
      {"return_tokens", true},
      {"temperature", 0},
      {"id_slot", slot}});
}

struct Said {
  std::vector<int> tokens;
  int64_t cached = 0;
  int64_t slot = 0;
};

Said ask(Served& served, const std::vector<int>& prompt, int slot = -1, int tokens = 4) {
  const Answer answer = served.post("/completion", completion(prompt, slot, tokens));
  EXPECT_EQ(answer.status, 200) << answer.body;
  const json::value body = answer.json();
  return {
      json::value_to<std::vector<int>>(body.at("tokens")),
      body.at("timings").at("cache_n").as_int64(),
      body.at("id_slot").as_int64()};
}

std::vector<int> joined(std::vector<int> a, const std::vector<int>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class SlotFiles : public testing::Test {
 protected:
  std::unique_ptr<Served> serve(
      Script kind = Script::script, const EngineOptions& engine = {}, bool folder = true) const {
    server::AppOptions options;
    if (folder) {
      options.slot_folder = (folder_ / "").string();
    }
    const std::string name = kind == Script::script ? "S" : kind == Script::loop ? "L" : "M";
    return std::make_unique<Served>(serve_script(kind, name, engine), options);
  }
  static Answer act(Served& served, int slot, const std::string& action, const std::string& file) {
    return served.post(
        "/slots/" + std::to_string(slot) + "?action=" + action,
        json::serialize(json::object{{"filename", file}}));
  }
  static int64_t tokens_in(Served& served, size_t slot) {
    return served.get("/slots").json().at(slot).at("n_tokens").as_int64();
  }

  TempFolder folder_;
};

TEST_F(SlotFiles, AreSavedAndServeAnotherServer) {
  const auto first = serve();
  const std::vector<int> prompt = tokens_of(100, 1);
  const Said said = ask(*first, prompt, 3, 10);
  EXPECT_EQ(said.slot, 3);
  EXPECT_EQ(said.tokens.size(), 10u);
  ASSERT_TRUE(soon([&] { return tokens_in(*first, 3) == 110; }));
  const Answer saved = act(*first, 3, "save", "talk.bin");
  ASSERT_EQ(saved.status, 200) << saved.body;
  EXPECT_EQ(saved.json().at("id_slot"), 3);
  EXPECT_EQ(saved.json().at("filename"), "talk.bin");
  EXPECT_EQ(saved.json().at("n_saved"), 110);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(folder_ / "talk.bin"));
  EXPECT_EQ(saved.json().at("n_written"), size);
  EXPECT_GE(saved.json().at("timings").at("save_ms").as_double(), 0);

  const std::vector<int> next = joined(joined(prompt, said.tokens), tokens_of(20, 5));
  const auto cold = serve();
  const auto second = serve();
  const Answer restored = act(*second, 0, "restore", "talk.bin");
  ASSERT_EQ(restored.status, 200) << restored.body;
  EXPECT_EQ(restored.json().at("id_slot"), 0);
  EXPECT_EQ(restored.json().at("n_restored"), 110);
  EXPECT_EQ(restored.json().at("n_read"), size);
  EXPECT_GE(restored.json().at("timings").at("restore_ms").as_double(), 0);
  EXPECT_EQ(tokens_in(*second, 0), 110);
  // From whatever slot, and in whatever route.
  const Said warm = ask(*second, next, 7);
  EXPECT_EQ(warm.cached, 110);
  EXPECT_EQ(ask(*cold, next).cached, 0);
  EXPECT_EQ(warm.tokens, ask(*cold, next).tokens);
  const auto other = serve();
  act(*other, 1, "restore", "talk.bin");
  const Answer usage = other->post(
      "/v1/completions",
      json::serialize(json::object{{"prompt", json::value_from(next)}, {"max_tokens", 2}}));
  EXPECT_EQ(usage.json().at("usage").at("prompt_tokens_details").at("cached_tokens"), 110)
      << usage.body;
  // What was restored can be saved again.
  EXPECT_EQ(act(*other, 1, "save", "again").json().at("n_saved"), 110);
  EXPECT_EQ(read_file(folder_ / "again").size(), static_cast<size_t>(size));
}

TEST_F(SlotFiles, RememberTheLastThatRanThere) {
  const auto served = serve();
  EXPECT_EQ(ask(*served, tokens_of(20, 1)).slot, 0);  // the first that is free
  ASSERT_TRUE(soon([&] { return tokens_in(*served, 0) == 24; }));
  EXPECT_EQ(ask(*served, tokens_of(50, 2)).slot, 0);
  ASSERT_TRUE(soon([&] { return tokens_in(*served, 0) == 54; }));
  EXPECT_EQ(ask(*served, tokens_of(40, 2), 31).slot, 31);
  ASSERT_TRUE(soon([&] { return tokens_in(*served, 31) == 44; }));
  EXPECT_EQ(tokens_in(*served, 0), 54);
  // A chat too, streamed, with the slot told in llama-server's own route only.
  Client c = served->client();
  c.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"stream":true,"id_slot":5})");
  EXPECT_THAT(c.read_answer().body, testing::EndsWith("[DONE]\n\n"));
  EXPECT_TRUE(soon([&] { return tokens_in(*served, 5) > 11; }));
  EXPECT_EQ(served->post("/completion", completion({1, 2}, 32)).status, 400);
  EXPECT_EQ(served->post("/completion", completion({1, 2}, -2)).status, 400);
}

TEST_F(SlotFiles, AreErased) {
  const auto served = serve();
  const std::vector<int> one = tokens_of(80, 1);
  const std::vector<int> other = joined({one.begin(), one.begin() + 40}, tokens_of(30, 9));
  ask(*served, one, 0);
  ask(*served, other, 1);
  ASSERT_TRUE(soon([&] { return tokens_in(*served, 1) == 74; }));
  const Answer erased = served->post("/slots/0?action=erase", "");
  ASSERT_EQ(erased.status, 200) << erased.body;
  EXPECT_EQ(erased.json(), json::parse(R"({"id_slot":0,"n_erased":84})"));
  EXPECT_EQ(tokens_in(*served, 0), 0);
  EXPECT_EQ(ask(*served, other, 1).cached, 69);  // it is not the other's loss
  EXPECT_EQ(ask(*served, one, 0).cached, 40);
  ASSERT_TRUE(soon([&] { return tokens_in(*served, 0) == 84; }));
  EXPECT_EQ(served->post("/slots/0?action=erase", "{}").json().at("n_erased"), 84);
  EXPECT_EQ(served->post("/slots/1?action=erase", "{}").json().at("n_erased"), 74);
  EXPECT_EQ(served->stats().kept_tokens, 0);
  EXPECT_EQ(ask(*served, one).cached, 0);
}

TEST_F(SlotFiles, WhatCannotBeIsSaid) {
  const auto served = serve();
  const auto message = [&](const Answer& answer, int status) {
    EXPECT_EQ(answer.status, status) << answer.body;
    return std::string(answer.json().at("error").at("message").as_string());
  };
  EXPECT_THAT(message(act(*served, 0, "save", "a"), 400), HasSubstr("slot 0 is empty"));
  EXPECT_THAT(message(act(*served, 32, "save", "a"), 400), HasSubstr("0 to 31"));
  EXPECT_THAT(message(served->post("/slots/x?action=save", "{}"), 400), HasSubstr("no slot"));
  EXPECT_THAT(message(act(*served, 0, "copy", "a"), 400), HasSubstr("save, restore or erase"));
  EXPECT_THAT(message(served->post("/slots/0", "{}"), 400), HasSubstr("action"));
  EXPECT_THAT(message(served->post("/slots/0?action=save", "{}"), 400), HasSubstr("filename"));
  EXPECT_THAT(message(served->post("/slots/0?action=save", "x"), 400), HasSubstr("JSON"));
  for (const std::string name :
       {"",
        "..",
        ".",
        "../x",
        "a/b",
        "/etc/passwd",
        "a\\b",
        "c:x",
        "x*",
        " x",
        "x ",
        "x.",
        "a\nb",
        "\xC2\x85",
        "\xE2\x88\x95x"}) {
    for (const char* action : {"save", "restore"}) {
      EXPECT_THAT(message(act(*served, 0, action, name), 400), HasSubstr("filename")) << name;
    }
  }
  EXPECT_THAT(message(act(*served, 0, "save", std::string(201, 'x')), 400), HasSubstr("201 bytes"));
  EXPECT_THAT(message(act(*served, 0, "restore", "none"), 400), HasSubstr("no file 'none'"));
  served->post("/completion", R"({"prompt":[1],"n_predict":1,"id_slot":0})");
  std::filesystem::create_directory(folder_ / "folder");
  EXPECT_THAT(message(act(*served, 0, "save", "folder"), 400), HasSubstr("is no file"));
  std::filesystem::remove(folder_ / "folder");
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / ""));
}

TEST_F(SlotFiles, FilesThatAreNoGood) {
  const auto served = serve();
  ask(*served, tokens_of(100, 1), 0);
  ASSERT_TRUE(soon([&] { return tokens_in(*served, 0) > 0; }));
  ASSERT_EQ(act(*served, 0, "save", "good").status, 200);
  const std::string good = read_file(folder_ / "good");
  folder_.write("half", good.substr(0, good.size() / 2));
  folder_.write("head", good.substr(0, 100));
  folder_.write("none", "");
  folder_.write("text", "this is no cache at all, but has some length");
  std::filesystem::create_directory(folder_ / "folder");
  for (const std::string name : {"half", "head", "none", "text", "folder"}) {
    const Answer answer = act(*served, 1, "restore", name);
    EXPECT_EQ(answer.status, 400) << name;
    EXPECT_THAT(answer.body, HasSubstr("unable to restore the slot")) << name;
    EXPECT_THAT(answer.body, HasSubstr(name));
    EXPECT_THAT(answer.body, testing::Not(HasSubstr(folder_.path().string()))) << name;
  }
  EXPECT_EQ(tokens_in(*served, 1), 0);
  const auto other = serve(Script::majority);
  const Answer foreign = act(*other, 0, "restore", "good");
  EXPECT_EQ(foreign.status, 400);
  EXPECT_THAT(foreign.body, HasSubstr("good: this prompt cache is of another model"));
  EXPECT_EQ(act(*served, 1, "restore", "good").status, 200);
}

TEST_F(SlotFiles, WithoutAFolderTheyAreNotSaved) {
  const auto served = serve(Script::script, {}, false);
  for (const std::string action : {"save", "restore", "erase"}) {
    const Answer answer = act(*served, 0, action, "x");
    EXPECT_EQ(answer.status, 501);
    EXPECT_EQ(answer.json().at("error").at("type"), "not_supported_error");
    EXPECT_THAT(answer.body, HasSubstr("--slot-save-path"));
  }
}

// As llama-server does: what is asked of a slot waits until nobody runs there.
TEST_F(SlotFiles, BusyOnesAreWaitedFor) {
  EngineOptions engine;
  engine.max_running = 2;
  engine.context_length = 1'000'000;
  const auto served = serve(Script::loop, engine);
  const auto stream = [&](int slot) {
    Client c = served->client();
    c.post(
        "/completion",
        json::serialize(json::object{
            {"prompt", json::array{kScriptBos}}, {"stream", true}, {"id_slot", slot}}));
    c.read_head();
    c.read_chunk();
    return c;
  };
  Client running = stream(0);
  Client other = stream(1);
  EXPECT_EQ(served->get("/slots").json().at(0).at("is_processing"), true);
  Client saves = served->client();
  saves.post("/slots/0?action=save", R"({"filename":"a"})");
  Client leaves = served->client();
  leaves.post("/slots/0?action=save", R"({"filename":"b"})");
  other.close();  // somebody else's is not waited for
  EXPECT_TRUE(soon([&] { return act(*served, 1, "save", "c").status == 200; }));
  EXPECT_FALSE(saves.readable(0.05));
  leaves.close();
  EXPECT_TRUE(soon([&] { return served->server->connections() == 2; }));
  running.close();
  const Answer saved = saves.read_answer();
  EXPECT_EQ(saved.status, 200) << saved.body;
  EXPECT_GT(saved.json().at("n_saved").as_int64(), 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "b"));
}

// What waits for a slot does not keep the server from ending.
TEST_F(SlotFiles, WaitingOnesEndWithTheServer) {
  EngineOptions engine;
  engine.context_length = 1'000'000;
  auto served = serve(Script::loop, engine);
  Client c = served->client();
  c.post("/completion", R"({"prompt":[1],"stream":true,"id_slot":0})");
  c.read_head();
  Client saves = served->client();
  saves.post("/slots/0?action=save", R"({"filename":"a"})");
  EXPECT_FALSE(saves.readable(0.05));
  served.reset();
  EXPECT_TRUE(saves.closed_by_server());
}

}  // namespace

}  // namespace quince::test
