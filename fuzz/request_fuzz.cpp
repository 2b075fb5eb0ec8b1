// Bodies of requests, as text of unknown origin, for every route that takes one. The input is the
// route (one byte), then the body; its length chooses what is done to a slot. Answers are begun and
// given up at once, as by a client that goes away.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/fakes.h"
#include "server/app.h"
#include "server/routes.h"

namespace {

using namespace quince;

constexpr int kVocab = 300;  // more than there are tokens

Tokenizer bytes_and_words() {
  std::vector<std::string> texts;
  Vocabulary vocabulary;
  vocabulary.kind = VocabularyKind::scores;
  for (int byte = 0; byte < 256; ++byte) {
    texts.push_back(fmt::format("<0x{:02X}>", byte));
    vocabulary.types.push_back(TokenType::byte);
  }
  for (const char* word : {"\":", "ab", "{\"", "12", "\xc3\xa4", "]}"}) {
    texts.emplace_back(word);
    vocabulary.types.push_back(TokenType::normal);
  }
  texts.emplace_back("<end>");
  vocabulary.types.push_back(TokenType::control);
  vocabulary.tokens.assign(texts.begin(), texts.end());
  vocabulary.scores.resize(texts.size());
  return Tokenizer(vocabulary, "fuzz");
}

std::shared_ptr<server::ServedModel> make_model() {
  TextSide text("fuzz", bytes_and_words());
  text.template_text =
      "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}"
      "{% for t in tools %}<tool_call>{{ t.function.name }}{% endfor %}";
  text.chat_template.emplace(text.template_text, boost::json::object(), "fuzz");
  auto model = std::make_shared<server::ServedModel>(std::move(text));
  model->id = "fuzz";
  model->engine =
      std::make_unique<Engine>([] { return std::make_unique<FakeModel>(kVocab); }, EngineOptions());
  model->engine->set_tokenizer(model->text.tokenizer);
  return model;
}

server::AppOptions options() {
  server::AppOptions out;
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("fuzz-slots-{}", getpid());
  std::filesystem::create_directory(folder);
  out.slot_folder = folder.string();
  return out;
}

struct Fixture {
  server::App app{options()};
  ~Fixture() {
    std::filesystem::remove_all(app.options().slot_folder);
  }
  std::vector<std::string> paths;

  Fixture() {
    app.set_model(make_model());
    for (const server::Route& route : server::routes()) {
      if (route.method == "POST") {
        std::string path(route.path);
        if (const size_t at = path.find("{id}"); at != std::string::npos) {
          path.replace(at, 4, "0");
        }
        paths.push_back(std::move(path));
      }
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Fixture fixture;
  if (size == 0) {
    return 0;
  }
  server::HttpRequest request;
  request.method = "POST";
  request.path = fixture.paths[data[0] % fixture.paths.size()];
  constexpr const char* kActions[] = {"save", "restore", "erase"};  // of /slots/0
  request.query = fmt::format("action={}", kActions[size % 3]);
  request.body.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  server::Response response = fixture.app.handle(std::move(request));
  if (response.stream) {
    response.stream->start([] {});
    response.stream->pull(1000);
  }
  if (response.pending) {
    response.pending->start([] {});
    response.pending->poll();
  }
  if (response.status >= 500 && response.status != 503) {
    throw std::logic_error("a request made an error of ours: " + response.body);
  }
  return 0;
}
