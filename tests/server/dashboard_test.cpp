// packaging/grafana.json asks for what /metrics gives.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "server/served.h"

namespace quince::test {

namespace {

namespace json = boost::json;

class Dashboard : public ServedTest<Script::script> {};

TEST_F(Dashboard, EveryNameIsExported) {
  served().post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  std::ifstream stream(
      std::filesystem::path(QUINCE_TEST_DATA).parent_path() / "packaging" / "grafana.json");
  std::stringstream text;
  text << stream.rdbuf();
  const json::value board = json::parse(text.str());
  const std::string exported = "\n" + served().get("/metrics").body;
  const std::regex name(R"(\b(?:quince:|llamacpp:|process_)\w+)");
  std::set<std::string> names;
  for (const json::value& panel : board.at("panels").as_array()) {
    EXPECT_FALSE(panel.at("targets").as_array().empty()) << panel.at("title");
    for (const json::value& target : panel.at("targets").as_array()) {
      const std::string query(target.at("expr").as_string());
      const std::sregex_iterator first(query.begin(), query.end(), name);
      EXPECT_NE(first, std::sregex_iterator()) << query;
      for (auto it = first; it != std::sregex_iterator(); ++it) {
        names.insert(it->str());
      }
    }
  }
  EXPECT_GE(names.size(), 15u);
  for (const std::string& metric : names) {
    const bool there = exported.find("\n" + metric + " ") != std::string::npos ||
                       exported.find("\n" + metric + "{") != std::string::npos;
    EXPECT_TRUE(there) << metric;
  }
}

}  // namespace

}  // namespace quince::test
