#include "cli/chat.h"

#include <deque>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "weights/files.h"

namespace quince::cli {
namespace {

using testing::HasSubstr;

class FakeLines : public LineSource {
 public:
  FakeLines(std::initializer_list<const char*> lines) {
    for (const char* line : lines) {
      lines_.push_back({Line::Kind::text, line});
    }
  }
  FakeLines& interrupt(const char* typed = "") {
    lines_.push_back({Line::Kind::interrupt, typed});
    return *this;
  }
  FakeLines& text(const char* line) {
    lines_.push_back({Line::Kind::text, line});
    return *this;
  }
  Line read(const std::string& prompt) override {
    prompts.push_back(prompt);
    if (lines_.empty()) {
      return {};
    }
    Line line = lines_.front();
    lines_.pop_front();
    return line;
  }
  bool all_read() const {
    return lines_.empty();
  }
  std::vector<std::string> prompts;

 private:
  std::deque<Line> lines_;
};

// Answers "re: " and the last message; fails when told to.
class EchoResponder : public Responder {
 public:
  Reply reply(
      const Conversation& conversation,
      const GenerationSettings& settings,
      const ShowText& show) override {
    asked.push_back(conversation);
    temperatures.push_back(settings.sampling.temperature);
    if (!fail.empty()) {
      throw UserError("{}", std::exchange(fail, ""));
    }
    Reply reply;
    reply.text = "re: " + conversation.messages.back().content;
    reply.reason = reason;
    reply.interrupted = interrupted;
    reply.stats.prompt_tokens = 10;
    reply.stats.generated_tokens = 5;
    show("re: ");
    show(conversation.messages.back().content);
    return reply;
  }
  std::vector<Conversation> asked;
  std::vector<float> temperatures;
  std::string fail;
  FinishReason reason = FinishReason::stop;
  bool interrupted = false;
};

struct Session {
  EchoResponder responder;
  std::string answers;
  std::string info;
  Conversation conversation;
  GenerationSettings settings;

  void run(FakeLines lines, Chat::Options options = {}) {
    if (options.model.empty()) {
      options.model = "m";
    }
    Chat chat(
        options,
        GenerationSettings{},
        responder,
        lines,
        [&](std::string_view text) { answers += text; },
        [&](std::string_view text) { info += text; });
    chat.run();
    conversation = chat.conversation();
    settings = chat.settings();
  }
};

TEST(ChatCommand, Parsing) {
  auto command = parse_chat_command("  /save  my file.json ");
  ASSERT_TRUE(command);
  EXPECT_EQ(command->name, "save");
  EXPECT_EQ(command->rest, "my file.json");
  EXPECT_EQ(parse_chat_command("/reset")->name, "reset");
  EXPECT_EQ(parse_chat_command("/system a\nb")->rest, "a\nb");
  EXPECT_FALSE(parse_chat_command("hello /save x"));
  EXPECT_FALSE(parse_chat_command("//usr/bin"));
  EXPECT_FALSE(parse_chat_command("/ is a slash"));
  EXPECT_FALSE(parse_chat_command("/"));
  EXPECT_FALSE(parse_chat_command(""));
}

TEST(Chat, KeepsTheConversation) {
  Session session;
  session.run(
      {"one", "", "   ", "two", "/quit", "never"},
      {.model = "m", .system = "be brief", .verbose = false, .keep_turns = true});
  ASSERT_EQ(session.responder.asked.size(), 2u);
  EXPECT_EQ(session.responder.asked[0].system, "be brief");
  ASSERT_EQ(session.responder.asked[1].messages.size(), 3u);
  EXPECT_EQ(session.responder.asked[1].messages[1].role, "assistant");
  EXPECT_EQ(session.responder.asked[1].messages[1].content, "re: one");
  EXPECT_EQ(session.answers, "re: one\nre: two\n");
}

TEST(Chat, WithoutTurnsEveryLineStandsAlone) {
  Session session;
  session.run(
      {"one", "two"},
      {.model = "m", .system = std::nullopt, .verbose = false, .keep_turns = false});
  ASSERT_EQ(session.responder.asked.size(), 2u);
  EXPECT_EQ(session.responder.asked[1].messages.size(), 1u);
}

TEST(Chat, SystemAndReset) {
  Session session;
  session.run(
      {"/system", "/system you are \"X\"", "hi", "/system", "/reset", "again", "/system \"\""});
  EXPECT_THAT(session.info, HasSubstr("(no system prompt)"));
  EXPECT_THAT(session.info, HasSubstr("you are \"X\"\n"));
  ASSERT_EQ(session.responder.asked.size(), 2u);
  EXPECT_EQ(session.responder.asked[1].messages.size(), 1u);
  EXPECT_EQ(session.responder.asked[1].system, "you are \"X\"");
  EXPECT_FALSE(session.conversation.system);
}

TEST(Chat, SetChangesTheNextAnswer) {
  Session session;
  session.run({"a", "/set temp 0", "b", "/set top_k=3", "/set stop END", "/set temp", "/set"});
  EXPECT_FLOAT_EQ(session.responder.temperatures[0], 0.8f);
  EXPECT_FLOAT_EQ(session.responder.temperatures[1], 0.0f);
  EXPECT_EQ(session.settings.sampling.top_k, 3);
  EXPECT_EQ(session.settings.stops, std::vector<std::string>{"END"});
  EXPECT_THAT(session.info, HasSubstr("temp 0 (greedy)"));
  for (const Setting& setting : generation_settings()) {
    EXPECT_THAT(session.info, HasSubstr("  " + std::string(setting.name)));
  }
}

TEST(Chat, SetStopCanBeEmptied) {
  Session session;
  session.run({"/set stop A", "/set stop none"});
  EXPECT_TRUE(session.settings.stops.empty());
}

TEST(Chat, MistakesAreExplainedAndTheChatGoesOn) {
  Session session;
  session.run({"/sav x", "/set temp hot", "/set tmep 1", "/save", "/load /nowhere/x.json", "hi"});
  EXPECT_THAT(session.info, HasSubstr("/sav: unknown command; did you mean /save?"));
  EXPECT_THAT(session.info, HasSubstr("/set temp 'hot': not a number"));
  EXPECT_THAT(session.info, HasSubstr("/set tmep: unknown setting; did you mean temp?"));
  EXPECT_THAT(session.info, HasSubstr("/save: which file?"));
  EXPECT_THAT(session.info, HasSubstr("/nowhere/x.json"));
  EXPECT_EQ(session.responder.asked.size(), 1u);
}

TEST(Chat, AFailedAnswerLeavesNoTrace) {
  Session session;
  session.responder.fail = "the prompt has 600 tokens, the context 512";
  session.run({"too long", "short"});
  EXPECT_THAT(session.info, HasSubstr("600 tokens"));
  ASSERT_EQ(session.responder.asked.size(), 2u);
  EXPECT_EQ(session.responder.asked[1].messages.size(), 1u);
  EXPECT_EQ(session.conversation.messages.size(), 2u);
}

TEST(Chat, SlashEscapes) {
  Session session;
  session.run({"//usr/bin", "/ x"});
  EXPECT_EQ(session.responder.asked[0].messages.back().content, "/usr/bin");
  EXPECT_EQ(session.responder.asked[1].messages.back().content, "/ x");
}

TEST(Chat, SeveralLines) {
  Session session;
  session.run(
      {"first\\",
       "second",
       "\"\"\"one",
       "two",
       "three\"\"\"",
       "\"\"\"",
       "alone",
       "\"\"\"",
       "pasted\nlines",
       "\"\"\"in one\"\"\""});
  ASSERT_EQ(session.responder.asked.size(), 5u);
  auto message = [&](size_t i) { return session.responder.asked[i].messages.back().content; };
  EXPECT_EQ(message(0), "first\nsecond");
  EXPECT_EQ(message(1), "one\ntwo\nthree");
  EXPECT_EQ(message(2), "alone");
  EXPECT_EQ(message(3), "pasted\nlines");
  EXPECT_EQ(message(4), "in one");
}

TEST(Chat, InterruptTwiceLeaves) {
  Session session;
  FakeLines lines{"a"};
  lines.interrupt().interrupt().text("never");
  session.run(lines);
  EXPECT_EQ(session.responder.asked.size(), 1u);
  EXPECT_THAT(session.info, HasSubstr("Ctrl-C again"));
}

TEST(Chat, InterruptDropsOnlyTheLine) {
  Session session;
  FakeLines lines{};
  lines.interrupt("half a sen").interrupt().text("b").interrupt().text("c");
  session.run(lines);
  EXPECT_EQ(session.responder.asked.size(), 2u) << "a line between two interrupts resets the count";
}

TEST(Chat, InterruptInsideAFencedMessageDropsIt) {
  Session session;
  FakeLines lines{"\"\"\"", "x"};
  lines.interrupt().text("y");
  session.run(lines);
  ASSERT_EQ(session.responder.asked.size(), 1u);
  EXPECT_EQ(session.responder.asked[0].messages.back().content, "y");
}

TEST(Chat, StoppedAnswersStayInTheConversation) {
  Session session;
  session.responder.interrupted = true;
  session.responder.reason = FinishReason::cancelled;
  session.run({"a"});
  EXPECT_THAT(session.info, HasSubstr("(stopped)"));
  EXPECT_EQ(session.conversation.messages.back().content, "re: a");
}

TEST(Chat, CutOffAnswersSaySo) {
  Session session;
  session.responder.reason = FinishReason::length;
  session.run({"a"});
  EXPECT_THAT(session.info, HasSubstr("the context is full; /reset"));
  Session limited;
  limited.responder.reason = FinishReason::length;
  limited.run({"/set max-tokens 5", "a"});
  EXPECT_THAT(limited.info, HasSubstr("cut off after 5 tokens"));
}

TEST(Chat, StatsAddUp) {
  Session session;
  session.run({"/stats", "a", "b", "/stats"});
  EXPECT_THAT(session.info, HasSubstr("(no answer yet)"));
  EXPECT_THAT(session.info, HasSubstr("2 answers, 20 prompt tokens"));
  EXPECT_THAT(session.info, HasSubstr("10 generated"));
}

TEST(Chat, HelpNamesEveryCommand) {
  Session session;
  session.run({"/help"});
  for (const char* name :
       {"/help", "/system", "/reset", "/save", "/load", "/set", "/stats", "/quit"}) {
    EXPECT_THAT(session.info, HasSubstr(name));
  }
}

TEST(Chat, SavedConversationsComeBack) {
  test::TempFolder folder;
  std::string file = folder / "chat.json";
  Session first;
  first.run({"/system S", "naïve 👩 \"q\"", ("/save " + file).c_str()});
  Session second;
  second.run({("/load " + file).c_str(), "next"});
  ASSERT_EQ(second.responder.asked.size(), 1u);
  EXPECT_EQ(second.responder.asked[0].system, "S");
  ASSERT_EQ(second.responder.asked[0].messages.size(), 3u);
  EXPECT_EQ(second.responder.asked[0].messages[0].content, "naïve 👩 \"q\"");
}

}  // namespace
}  // namespace quince::cli
