// A tiny model behind a real socket: loaded as `quince serve` loads it, served in this process.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "cli/loaded_model.h"
#include "models/script_model.h"
#include "server/app.h"
#include "server/client.h"
#include "server/http.h"

namespace quince::test {

// The directory of a script model, written once for all tests of a program.
inline std::string script_folder(Script kind, const std::string& name) {
  static const std::filesystem::path root = [] {
    const auto path = std::filesystem::path(testing::TempDir()) /
                      ("quince_server_test_" + std::to_string(::getpid()));
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    return path;
  }();
  const std::filesystem::path folder = root / name;
  if (!std::filesystem::exists(folder)) {
    write_script_model(folder, kind);
  }
  return folder.string();
}

inline std::shared_ptr<server::ServedModel> serve_script(
    Script kind, const std::string& name, const EngineOptions& engine = {}) {
  cli::LoadRequest request;
  request.model = script_folder(kind, name);
  request.compute.threads = 1;
  request.engine = engine;
  request.quiet = true;
  cli::LoadedModel loaded = cli::load(request);
  auto model = std::make_shared<server::ServedModel>(std::move(loaded.text));
  model->id = name;
  model->aliases = {"other-name"};
  model->source = "somewhere";
  model->created = 1700000000;
  model->sampling.temperature = 0;
  model->sampling.end_tokens = model->text.end_tokens;
  model->engine = std::move(loaded.engine);
  model->engine->set_tokenizer(model->text.tokenizer);
  model->parallel = engine.max_running;
  model->most_answers = engine.max_running + engine.max_waiting;
  return model;
}

class Served {
 public:
  explicit Served(
      std::shared_ptr<server::ServedModel> model,
      server::AppOptions options = {},
      server::HttpOptions http = {})
      : app(std::move(options)) {
    if (model) {
      app.set_model(std::move(model));
    }
    http.port = 0;
    server.emplace(http, app);
    app.count_connections([this] { return server->connections(); });
    server->start();
  }

  Client client() {
    return Client(server->port());
  }
  Answer post(const std::string& path, const std::string& body, const std::string& headers = "") {
    Client c = client();
    c.post(path, body, headers);
    return c.read_answer();
  }
  Answer get(const std::string& path, const std::string& headers = "") {
    Client c = client();
    c.get(path, headers);
    return c.read_answer();
  }
  // The value of a line of /metrics; 0: there is no such line.
  double metric(const std::string& name) {
    const std::string text = get("/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::stod(text.substr(at + name.size() + 2));
  }
  EngineStats stats() {
    return app.loaded()->engine->stats();
  }

  server::App app;
  std::optional<server::HttpServer> server;
};

// Models are loaded once for all tests of a suite.
template <Script Kind>
class ServedTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    served_ = std::make_unique<Served>(serve_script(Kind, names().at(Kind)));
  }
  static void TearDownTestSuite() {
    served_.reset();
  }
  static const std::map<Script, std::string>& names() {
    static const std::map<Script, std::string> names{
        {Script::script, "S"}, {Script::loop, "L"}, {Script::majority, "M"}, {Script::dice, "D"}};
    return names;
  }
  static Served& served() {
    return *served_;
  }

 private:
  static std::unique_ptr<Served> served_;
};

template <Script Kind>
std::unique_ptr<Served> ServedTest<Kind>::served_;

inline const char* const kScriptText = "The quick brown fox jumps over\xF0\x9F\x91\xA9";

// The text of the first choice, whole or in pieces.
inline std::string text_of(const Answer& answer) {
  const auto choice = answer.json().at("choices").at(0);
  return std::string(
      choice.as_object().contains("text") ? choice.at("text").as_string()
                                          : choice.at("message").at("content").as_string());
}

struct Streamed {
  std::vector<boost::json::value> chunks;  // without [DONE]
  std::map<int64_t, std::string> texts;
  std::map<int64_t, std::vector<std::string>> finish;  // reasons
  bool done = false;
};

inline Streamed streamed(const Answer& answer) {
  Streamed out;
  for (const std::string& event : events(answer.body)) {
    EXPECT_FALSE(out.done) << "an event after [DONE]";
    if (event == "[DONE]") {
      out.done = true;
      continue;
    }
    out.chunks.push_back(boost::json::parse(event));
    const auto* choices = out.chunks.back().as_object().if_contains("choices");
    for (const auto& choice : choices != nullptr ? choices->as_array() : boost::json::array()) {
      const int64_t index = choice.at("index").as_int64();
      const auto& object = choice.as_object();
      const auto* text = object.contains("text")
                             ? object.if_contains("text")
                             : choice.at("delta").as_object().if_contains("content");
      if (text != nullptr && text->is_string()) {
        out.texts[index] += std::string(text->as_string());
      }
      if (!choice.at("finish_reason").is_null()) {
        out.finish[index].emplace_back(choice.at("finish_reason").as_string());
      }
    }
  }
  return out;
}

}  // namespace quince::test
