// The page at /, through a socket: what it is made of, and what a browser is told of it.
#include <algorithm>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "server/page/page.h"
#include "server/served.h"

namespace quince::test {

namespace {

using testing::HasSubstr;
using testing::Not;

server::AppOptions with_key() {
  server::AppOptions options;
  options.api_keys = {"secret"};
  return options;
}

// All that a text refers to, behind this mark and up to the next quote.
std::vector<std::string> behind(const std::string& text, const std::string& mark) {
  std::vector<std::string> found;
  for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos;) {
    at += mark.size();
    found.push_back(text.substr(at, text.find('"', at) - at));
  }
  return found;
}

// Also with keys, also while the model is being loaded: it is where people type their key.
TEST(Page, AllItsFilesAreThereWithoutAKey) {
  Served served(nullptr, with_key());
  const Answer index = served.get("/");
  ASSERT_EQ(index.status, 200);
  EXPECT_EQ(index.headers.at("content-type"), "text/html; charset=utf-8");
  std::vector<std::string> paths = behind(index.body, "href=\"page/");
  std::erase_if(paths, [](const std::string& path) { return path.starts_with('#'); });
  const auto scripts = behind(index.body, "src=\"page/");
  paths.insert(paths.end(), scripts.begin(), scripts.end());
  EXPECT_THAT(paths, testing::Contains("chat.js"));
  for (const std::string& module : {"api.js", "markdown.js"}) {
    EXPECT_THAT(served.get("/page/chat.js").body, HasSubstr("\"./" + module + "\""));
    paths.push_back(module);
  }
  EXPECT_GE(paths.size(), server::page_files().size() - 1);
  for (const std::string& path : paths) {
    const Answer file = served.get("/page/" + path);
    EXPECT_EQ(file.status, 200) << path;
    EXPECT_FALSE(file.body.empty()) << path;
  }
  EXPECT_EQ(served.get("/v1/models").status, 401);
  for (const char* odd :
       {"/page/", "/page/nothing.js", "/page/../app.h", "/page/%2e%2e/index.html"}) {
    EXPECT_GE(served.get(odd).status, 401) << odd;
  }
}

TEST(Page, NoScriptOrStyleButItsOwn) {
  Served served(nullptr);
  for (const server::PageFile& file : server::page_files()) {
    const std::string path = file.name == "index.html" ? "/" : "/page/" + std::string(file.name);
    const Answer answer = served.get(path);
    const std::string& policy = answer.headers.at("content-security-policy");
    EXPECT_THAT(policy, testing::StartsWith("default-src 'none'; script-src 'self';")) << path;
    EXPECT_THAT(policy, HasSubstr("require-trusted-types-for 'script'"));
    EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
    EXPECT_EQ(answer.headers.at("x-content-type-options"), "nosniff");
    EXPECT_EQ(answer.body, file.bytes);
    // No other server, nothing inline, nothing that makes code or markup of a text.
    if (file.name != "icon.svg") {
      for (const char* word :
           {"http://",
            "//cdn",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "onclick=",
            "style=\"",
            "<style",
            "javascript:"}) {
        EXPECT_THAT(answer.body, Not(HasSubstr(word))) << path;
      }
    }
  }
}

TEST(Page, TagsSaveBytes) {
  Served served(nullptr);
  std::vector<std::string> tags;
  for (const server::PageFile& file : server::page_files()) {
    const std::string path = file.name == "index.html" ? "/" : "/page/" + std::string(file.name);
    const std::string tag = served.get(path).headers.at("etag");
    EXPECT_EQ(std::count(tags.begin(), tags.end(), tag), 0);
    tags.push_back(tag);
    Client client = served.client();
    for (const std::string& given : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
      client.get(path, "If-None-Match: " + given + "\r\n");
      const Answer same = client.read_answer(true);  // the connection goes on: there is no body
      EXPECT_EQ(same.status, 304) << given;
      EXPECT_EQ(same.headers.at("etag"), tag);
      EXPECT_FALSE(same.headers.contains("content-length"));
    }
    client.get(path, "If-None-Match: \"other\"\r\n");
    EXPECT_EQ(client.read_answer().status, 200);
  }
}

TEST(Page, Head) {
  Served served(nullptr);
  const Answer whole = served.get("/");
  Client client = served.client();
  client.send("HEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
  const Answer head = client.read_answer(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers, whole.headers);
  EXPECT_EQ(head.headers.at("content-length"), std::to_string(whole.body.size()));
  client.get("/health");
  EXPECT_EQ(client.read_answer().status, 503);  // nothing of the body was sent
  EXPECT_EQ(served.post("/", "{}").status, 405);
}

TEST(Page, CanBeSwitchedOff) {
  server::AppOptions options;
  options.page = false;
  Served served(nullptr, options);
  EXPECT_EQ(served.get("/").status, 404);
  EXPECT_THAT(served.get("/page/chat.js").body, HasSubstr("--no-page"));
}

}  // namespace

}  // namespace quince::test
