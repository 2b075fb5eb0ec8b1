// POST /v1/completions.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/json_text.h"
#include "server/errors.h"
#include "server/openai/format.h"
#include "server/openai/params.h"
#include "server/openai/prompts.h"
#include "server/routes.h"

namespace quince::server {

namespace json = boost::json;

namespace {

struct CompletionOptions {
  bool logprobs = false;
  std::vector<std::string> echoes;  // the prompts' texts, or empty
};

class CompletionFormat : public AnswerFormat {
 public:
  CompletionFormat(
      std::string id,
      std::shared_ptr<ServedModel> model,
      const GenerationParams& params,
      CompletionOptions options)
      : id_(std::move(id)),
        model_(std::move(model)),
        created_(unix_seconds()),
        n_(static_cast<size_t>(params.n)),
        best_of_(static_cast<size_t>(params.best_of)),
        prompt_logprobs_(params.sampling.prompt_logprobs >= 0),
        usage_(params.include_usage),
        options_(std::move(options)) {
    chunk_ = fmt::format(
        R"(data: {{"id":{},"object":"text_completion","created":{},"model":{},"system_fingerprint":{},)",
        json_text(id_),
        created_,
        json_text(model_->id),
        json_text(fingerprint(*model_)));
    if (usage_) {
      chunk_ += R"("usage":null,)";
    }
  }

  void begin(std::string& out) override {
    for (size_t i = 0; i < options_.echoes.size() * best_of_; ++i) {
      offsets_.push_back(characters(options_.echoes[i / best_of_]));
      choice(out, i, options_.echoes[i / best_of_], "null", "null");
    }
  }

  void delta(std::string& out, size_t answer, const Delta& delta) override {
    offsets_.resize(std::max(offsets_.size(), answer + 1));
    const std::string logprobs =
        options_.logprobs ? json::serialize(logprobs_json(delta.tokens, offsets_[answer])) : "null";
    choice(out, answer, delta.text, logprobs, "null");
  }

  void finish(std::string& out, size_t answer, const AnswerEnd& end) override {
    choice(out, answer, "", "null", json_text(end.finish_reason), &end);
  }

  void end(std::string& out, const Usage& usage) override {
    add_stream_end(out, chunk_, usage_ ? &usage : nullptr);
  }

  void error(std::string& out, const std::exception_ptr& error) override {
    add_error_frame(out, error);
  }

  Response whole(
      std::vector<Delta> deltas, const std::vector<AnswerEnd>& ends, const Usage& usage) override {
    json::array choices;
    for (size_t prompt = 0; prompt * best_of_ < deltas.size(); ++prompt) {
      for (const size_t i : best(prompt * best_of_, deltas)) {
        std::string text = options_.echoes.empty() ? "" : options_.echoes[prompt];
        size_t offset = characters(text);
        json::object choice{
            {"index", choices.size()},
            {"text", text + deltas[i].text},
            {"logprobs", nullptr},
            {"finish_reason", ends[i].finish_reason}};
        if (options_.logprobs) {
          choice["logprobs"] = logprobs_json(deltas[i].tokens, offset);
        }
        if (prompt_logprobs_) {
          choice["prompt_logprobs"] = prompt_logprobs(model_->text.tokenizer, ends[i].prompt);
        }
        choices.push_back(std::move(choice));
      }
    }
    return {
        .body = compact_json(json::object{
            {"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", model_->id},
            {"system_fingerprint", fingerprint(*model_)},
            {"choices", std::move(choices)},
            {"usage", usage_json(usage)},
            {"timings", timings_json(ends.front())}})};
  }

 private:
  void choice(
      std::string& out,
      size_t answer,
      std::string_view text,
      std::string_view logprobs,
      std::string_view finish,
      const AnswerEnd* end = nullptr) {
    out.append(chunk_).append(R"("choices":[{"index":)").append(std::to_string(answer));
    out.append(R"(,"text":)").append(json_text(text)).append(R"(,"logprobs":)").append(logprobs);
    out.append(R"(,"finish_reason":)").append(finish).append("}]");
    if (end != nullptr) {
      out.append(R"(,"timings":)").append(compact_json(timings_json(*end)));
    }
    out.append("}\n\n");
  }

  // Of the answers from first on, the n whose tokens are likeliest on average.
  std::vector<size_t> best(size_t first, const std::vector<Delta>& deltas) const {
    std::vector<size_t> order(best_of_);
    std::iota(order.begin(), order.end(), first);
    const auto score = [&](size_t i) {
      double sum = 0;
      for (const GeneratedToken& token : deltas[i].tokens) {
        sum += finite(token.logprob);
      }
      return deltas[i].tokens.empty() ? 0 : sum / static_cast<double>(deltas[i].tokens.size());
    };
    if (best_of_ > n_) {
      std::stable_sort(
          order.begin(), order.end(), [&](size_t a, size_t b) { return score(a) > score(b); });
      order.resize(n_);
    }
    return order;
  }

  static size_t characters(std::string_view text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    }));
  }

  // offset: characters of the text so far, moved on.
  json::object logprobs_json(const std::vector<GeneratedToken>& tokens, size_t& offset) const {
    const Tokenizer& tokenizer = model_->text.tokenizer;
    json::array texts;
    json::array logprobs;
    json::array tops;
    json::array offsets;
    for (const GeneratedToken& token : tokens) {
      texts.emplace_back(token_name(tokenizer, token.id));
      logprobs.emplace_back(finite(token.logprob));
      json::object top;
      for (const TokenLogprob& other : token.top) {
        top[token_name(tokenizer, other.id)] = finite(other.logprob);
      }
      tops.push_back(std::move(top));
      offsets.emplace_back(offset);
      offset += characters(tokenizer.token_bytes(token.id));  // a cut one counts once
    }
    return {
        {"tokens", std::move(texts)},
        {"token_logprobs", std::move(logprobs)},
        {"top_logprobs", std::move(tops)},
        {"text_offset", std::move(offsets)}};
  }

  std::string id_;
  std::shared_ptr<ServedModel> model_;
  int64_t created_;
  size_t n_;
  size_t best_of_;
  bool prompt_logprobs_;
  bool usage_;
  CompletionOptions options_;
  std::string chunk_;
  std::vector<size_t> offsets_;  // of each text so far
};

}  // namespace

Response completions(const RouteCall& call) {
  const json::object body = parse_body(call.request.body);
  Fields fields(body);
  const auto model = call.app.model(fields.text("model").value_or(""));
  GenerationRequest request;
  request.model = model;
  request.params = parse_generation(fields, *model);
  CompletionOptions options;
  if (const auto top = fields.integer("logprobs", 0, 1000, "a whole number from 0 to 1000")) {
    options.logprobs = true;
    request.params.sampling.top_logprobs = static_cast<int>(*top);
  }
  request.params.sampling.logprobs = options.logprobs || request.params.best_of > request.params.n;
  request.prompts = parse_prompts(fields, "prompt", *model);
  if (fields.boolean("echo").value_or(false)) {
    for (const std::vector<Token>& prompt : request.prompts) {
      options.echoes.push_back(model->text.tokenizer.decode(prompt));
    }
  }
  const auto suffix = fields.text("suffix");
  if (suffix && !suffix->empty()) {
    throw bad_field("suffix", "suffix: filling in is not offered by this route");
  }
  const auto unknown = fields.unknown();
  call.app.refuse_unknown(unknown);
  request.id = new_id("cmpl-");
  request.format =
      std::make_unique<CompletionFormat>(request.id, model, request.params, std::move(options));
  Response response = call.app.generate(std::move(request), call.request);
  call.app.note_ignored(unknown, response);
  return response;
}

}  // namespace quince::server
