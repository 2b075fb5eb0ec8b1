#include "cli/args.h"

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "weights/files.h"

namespace quince::cli {
namespace {

using test::user_error;

TEST(ParseReal, TakesNumbersInRange) {
  EXPECT_DOUBLE_EQ(parse_real("--temp", "0.7", 0, 2), 0.7);
  EXPECT_DOUBLE_EQ(parse_real("--temp", "1e-30", 0, 2), 1e-30);
  EXPECT_DOUBLE_EQ(parse_real("--temp", "0", 0, 2), 0);
}

TEST(ParseReal, NamesFlagAndValue) {
  for (const char* bad : {"hot", "", "0.7x", " 1", "nan", "inf", "1e400", "-1", "3"}) {
    std::string message = user_error([&] { parse_real("--temp", bad, 0, 2); });
    EXPECT_NE(message.find("--temp"), std::string::npos) << bad;
    EXPECT_NE(message.find(bad), std::string::npos) << bad;
  }
}

TEST(ParseInteger, Range) {
  EXPECT_EQ(parse_integer("-n", "-1", -1, 10), -1);
  EXPECT_EQ(parse_integer("-n", "+7", -1, 10), 7);
  for (const char* bad : {"1.5", "", "x", "7k", "99999999999999999999", "11", "-2"}) {
    std::string message = user_error([&] { parse_integer("--max-tokens", bad, -1, 10); });
    EXPECT_NE(message.find("--max-tokens"), std::string::npos) << bad;
    EXPECT_NE(message.find(bad), std::string::npos) << bad;
  }
}

TEST(ParseCount, Units) {
  EXPECT_EQ(parse_count("-c", "32k", 0, 1 << 30), 32768);
  EXPECT_EQ(parse_count("-c", "1m", 0, 1 << 30), 1 << 20);
  EXPECT_EQ(parse_count("-c", "4096", 0, 1 << 30), 4096);
  for (const char* bad : {"32kb", "k", "9223372036854775807k", "-1k"}) {
    EXPECT_NE(user_error([&] { parse_count("-c", bad, 0, 1 << 30); }).find(bad), std::string::npos);
  }
}

TEST(ParseBytes, Units) {
  EXPECT_EQ(parse_bytes("--memory", "24GB"), uint64_t{24} << 30);
  EXPECT_EQ(parse_bytes("--memory", "1.5GiB"), uint64_t{3} << 29);
  EXPECT_EQ(parse_bytes("--memory", "512m"), uint64_t{512} << 20);
  EXPECT_EQ(parse_bytes("--memory", "100"), 100u);
  for (const char* bad : {"", "GB", "1XB", "-1GB", "0", "1e30", "nan", "infGB", "0x10"}) {
    EXPECT_NE(user_error([&] { parse_bytes("--memory", bad); }).find("--memory"), std::string::npos)
        << bad;
  }
}

TEST(ParseCounts, Lists) {
  EXPECT_EQ(parse_counts("-p", "128,1k", 0, 1 << 20), (std::vector<int64_t>{128, 1024}));
  for (const char* bad : {"", "1,", ",1", "1,,2", "1,x"}) {
    EXPECT_NE(user_error([&] { parse_counts("-p", bad, 0, 9); }).find("-p"), std::string::npos)
        << bad;
  }
}

// A small command line of its own.
struct Line {
  std::optional<std::string> first;
  std::optional<std::string> text;
  std::optional<std::string> device;
  std::vector<std::string> stops;
  bool verbose = false;
  bool help = false;

  std::string parse(std::vector<std::string> arguments) {
    CLI::App app("A test", "test");
    app.set_help_flag();
    FlagGroup group(app, "Flags");
    group.positional("NAME", first, "The name");
    group.text("-x,--text,--words", "TEXT", text, "Some text");
    group.choice("--device", {"cpu", "gpu"}, device, "Where");
    group.value("--stop", "TEXT", "Ends", [this](const std::string&, const std::string& value) {
      stops.push_back(value);
    });
    group.on("-v,--verbose", verbose, "Talk");
    refuse_flag(app, "--mlock", false, "is not offered");
    refuse_flag(app, "--lora", true, "is not offered either");
    try {
      help = !parse_flags(app, std::move(arguments));
      return help ? help_text(app, 80) : "";
    } catch (const UserError& error) {
      return error.what();
    }
  }
};

TEST(ParseFlags, TakesValuesInAnyForm) {
  Line line;
  EXPECT_EQ(line.parse({"-v", "name", "--text=a b", "--stop", "-1", "--stop", "--text"}), "");
  EXPECT_EQ(line.first, "name");
  EXPECT_EQ(line.text, "a b");
  EXPECT_EQ(line.stops, (std::vector<std::string>{"-1", "--text"}));
  EXPECT_TRUE(line.verbose);
}

TEST(ParseFlags, TextsArriveUnchanged) {
  for (const char* text : {"[a,b]", "{x}", "", "\"quoted\"", "a\nb", "-", "é"}) {
    Line line;
    EXPECT_EQ(line.parse({"--text", text, "--stop", text}), "") << text;
    EXPECT_EQ(line.text, text);
    EXPECT_EQ(line.stops, (std::vector<std::string>{text}));
  }
  Line line;
  EXPECT_EQ(line.parse({"[what?]"}), "");
  EXPECT_EQ(line.first, "[what?]");
  Line dashed;
  EXPECT_EQ(dashed.parse({"--", "--text"}), "");
  EXPECT_EQ(dashed.first, "--text");
}

TEST(ParseFlags, NothingBehindTheSignIsAnEmptyValue) {
  Line line;
  EXPECT_EQ(line.parse({"--stop=", "-v", "--text=", "name", "--stop", "--text=", "--stop="}), "");
  EXPECT_EQ(line.text, "");
  EXPECT_EQ(line.first, "name");
  EXPECT_TRUE(line.verbose);
  EXPECT_EQ(line.stops, (std::vector<std::string>{"", "--text=", ""}));
  Line dashed;
  EXPECT_EQ(dashed.parse({"--", "--text="}), "");
  EXPECT_EQ(dashed.first, "--text=");
}

TEST(ParseFlags, Complaints) {
  auto complaint = [](std::vector<std::string> arguments) {
    return Line().parse(std::move(arguments));
  };
  EXPECT_NE(complaint({"--txet", "a"}).find("did you mean --text?"), std::string::npos);
  EXPECT_NE(complaint({"--zzzzzz"}).find("--zzzzzz: unknown option"), std::string::npos);
  EXPECT_NE(complaint({"a", "b"}).find("'b': one argument too many"), std::string::npos);
  EXPECT_NE(
      complaint({"--device", "tpu"}).find("--device tpu: want one of cpu, gpu"), std::string::npos);
  EXPECT_NE(complaint({"--text"}).find("--text"), std::string::npos);
  EXPECT_EQ(complaint({"--mlock"}), "--mlock: is not offered");
  EXPECT_EQ(complaint({"--lora", "x"}), "--lora: is not offered either");
}

TEST(ParseFlags, HelpWinsOverMistakes) {
  Line line;
  std::string help = line.parse({"--device", "tpu", "--help"});
  EXPECT_TRUE(line.help);
  EXPECT_NE(help.find("-x, --text TEXT"), std::string::npos);
  EXPECT_NE(help.find("(also --words)"), std::string::npos);
  EXPECT_NE(help.find("NAME"), std::string::npos);
  EXPECT_EQ(help.find("--mlock"), std::string::npos) << "foreign flags are not advertised";
}

TEST(HelpText, KeepsToTheWidth) {
  Line line;
  std::string help = line.parse({"-h"});
  for (size_t begin = 0; begin < help.size();) {
    size_t end = help.find('\n', begin);
    EXPECT_LE(end - begin, 80u) << help.substr(begin, end - begin);
    begin = end + 1;
  }
}

}  // namespace
}  // namespace quince::cli
