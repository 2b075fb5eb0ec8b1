// Every public template that the test data has, over a matrix of conversations, against
// transformers' own environment (golden/make_golden.py).
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "base/error.h"
#include "chat/template.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

json::value read_golden(const char* name) {
  return json::parse(read_all(fs::path(QUINCE_TEST_DATA) / "chat" / "golden" / name));
}

std::string fingerprint(std::string_view text) {
  uint64_t value = 0xcbf29ce484222325;
  for (char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return fmt::format("{:016x}", value);
}

std::tm golden_time() {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mon = 6;
  now.tm_mday = 4;
  now.tm_hour = 12;
  now.tm_min = 5;
  now.tm_sec = 9;
  now.tm_wday = 6;
  now.tm_yday = 184;
  return now;
}

RenderOptions options_of(const json::object& conversation) {
  RenderOptions options;
  options.add_generation_prompt = conversation.at("add_generation_prompt").as_bool();
  if (const json::value* tools = conversation.if_contains("tools")) {
    options.tools = tools->as_array();
  }
  if (const json::value* extra = conversation.if_contains("extra")) {
    options.extra = extra->as_object();
  }
  options.now = golden_time();
  return options;
}

// The text, or "refused: why".
std::string prompt(const ChatTemplate& chat, const json::object& conversation) {
  try {
    return chat.render(conversation.at("messages").as_array(), options_of(conversation));
  } catch (const UserError& error) {
    return std::string("refused: ") + error.what();
  }
}

TEST(TemplateGolden, PromptsAreTheReferences) {
  const char* models = std::getenv("QUINCE_TEST_MODELS");
  if (!models) {
    GTEST_SKIP() << "QUINCE_TEST_MODELS is not set";
  }
  const fs::path folder = fs::path(models) / "llama.cpp-models" / "templates";
  const json::value golden = read_golden("prompts.json");
  const json::value conversations = read_golden("conversations.json");
  const json::object special{
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
  const char* dump = std::getenv("QUINCE_DUMP_PROMPTS");  // a folder: the differing ones go there
  int compared = 0;
  for (const auto& [name, row] : golden.at("prompts").as_object()) {
    std::optional<ChatTemplate> chat;
    try {
      chat.emplace(read_all(folder / std::string(name)), special, std::string(name));
    } catch (const UserError& error) {
      EXPECT_TRUE(row.is_string()) << error.what();
      continue;
    }
    if (row.is_string()) {
      ADD_FAILURE() << name << ": the reference does not take this template";
      continue;
    }
    for (const auto& [conversation, want] : row.as_object()) {
      const std::string got = prompt(*chat, conversations.at(conversation).as_object());
      const bool refused = got.starts_with("refused: ");
      const std::string have = refused ? "refused" : fingerprint(got);
      EXPECT_EQ(have, std::string(want.as_string()))
          << name << " / " << conversation << (refused ? " " + got : "");
      ++compared;
      if (dump && have != std::string(want.as_string())) {
        std::ofstream(
            fs::path(dump) / fmt::format("{}.{}", std::string(name), std::string(conversation)))
            << got;
      }
    }
  }
  EXPECT_GT(compared, 2000);
}

}  // namespace
}  // namespace quince
