// POST /completion as llama-server has it: flat objects, "content", no [DONE].
#include <utility>

#include "base/json_text.h"
#include "server/errors.h"
#include "server/llama/completion.h"
#include "server/openai/format.h"
#include "server/openai/params.h"
#include "server/openai/prompts.h"
#include "server/routes.h"

namespace quince::server {

namespace json = boost::json;

namespace {

struct LlamaOptions {
  int n_probs = 0;
  bool return_tokens = false;
  bool one_prompt = true;  // the answer is an object, not a list
  std::vector<std::string> prompts;
};

class LlamaFormat : public AnswerFormat {
 public:
  LlamaFormat(
      std::string id,
      std::shared_ptr<ServedModel> model,
      GenerationParams params,
      LlamaOptions options)
      : id_(std::move(id)),
        model_(std::move(model)),
        params_(std::move(params)),
        options_(std::move(options)) {}

  void set_slots(const std::vector<int>& slots) override {
    slots_ = slots;
  }
  void begin(std::string&) override {}

  void delta(std::string& out, size_t answer, const Delta& delta) override {
    json::object chunk{
        {"index", answer},
        {"content", delta.text},
        {"tokens", json::value_from(delta.ids)},
        {"stop", false},
        {"id_slot", slots_.at(answer)}};
    add_probabilities(chunk, delta);
    add_frame(out, json::serialize(chunk));
  }

  void finish(std::string& out, size_t answer, const AnswerEnd& end) override {
    add_frame(out, compact_json(last(answer, "", end)));
  }

  void end(std::string&, const Usage&) override {}

  void error(std::string& out, const std::exception_ptr& error) override {
    add_error_frame(out, error);
  }

  Response whole(
      std::vector<Delta> deltas, const std::vector<AnswerEnd>& ends, const Usage&) override {
    json::array answers;
    for (size_t i = 0; i < deltas.size(); ++i) {
      json::object answer = last(i, deltas[i].text, ends[i]);
      if (options_.return_tokens) {
        answer["tokens"] = json::value_from(deltas[i].ids);
      }
      add_probabilities(answer, deltas[i]);
      answers.push_back(std::move(answer));
    }
    return {
        .body = options_.one_prompt && answers.size() == 1 ? compact_json(answers.front())
                                                           : compact_json(answers)};
  }

 private:
  json::object last(size_t answer, const std::string& content, const AnswerEnd& end) const {
    const char* type = end.stop_text                      ? "word"
                       : end.reason == FinishReason::stop ? "eos"
                       : end.finish_reason == "length"    ? "limit"
                                                          : "none";
    return {
        {"index", answer},
        {"content", content},
        {"tokens", json::array()},
        {"id_slot", slots_.at(answer)},
        {"stop", true},
        {"model", model_->id},
        {"tokens_predicted", end.tokens},
        {"tokens_evaluated", end.stats.prompt_tokens},
        {"tokens_cached", end.stats.cached_tokens},
        {"generation_settings", settings()},
        {"prompt", options_.prompts.at(answer / static_cast<size_t>(params_.n))},
        {"has_new_line", content.find('\n') != std::string::npos},
        {"truncated", false},
        {"stop_type", type},
        {"stopping_word", end.stop_text.value_or("")},
        {"timings", timings_json(end)}};
  }

  json::object settings() const {
    json::object out;
    for (const NumberParam& row : number_params()) {
      out[std::string(row.name)] = number_json(row, params_.sampling);
    }
    out["n_predict"] = params_.sampling.max_tokens;
    out["stop"] = json::value_from(params_.stops);
    out["stream"] = params_.stream;
    json::array samplers;
    for (const SamplerStep step : params_.sampling.samplers) {
      samplers.emplace_back(std::string(name(step)));
    }
    out["samplers"] = std::move(samplers);
    return out;
  }

  void add_probabilities(json::object& out, const Delta& delta) const {
    if (options_.n_probs == 0) {
      return;
    }
    const auto entry = [&](Token id, float logprob) {
      json::object token = token_json(model_->text.tokenizer, id, logprob);
      token["id"] = id;
      return token;
    };
    json::array list;
    for (const GeneratedToken& token : delta.tokens) {
      json::object row = entry(token.id, token.logprob);
      json::array top;
      for (const TokenLogprob& other : token.top) {
        top.push_back(entry(other.id, other.logprob));
      }
      row["top_logprobs"] = std::move(top);
      list.push_back(std::move(row));
    }
    out["completion_probabilities"] = std::move(list);
  }

  std::string id_;
  std::shared_ptr<ServedModel> model_;
  GenerationParams params_;
  LlamaOptions options_;
  std::vector<int> slots_;
};

}  // namespace

Response answer_llama(
    const RouteCall& call,
    Fields& fields,
    const std::shared_ptr<ServedModel>& model,
    std::vector<std::vector<Token>> prompts,
    bool one_prompt,
    std::string_view prompt_field) {
  GenerationRequest request;
  request.model = model;
  request.params = parse_generation(fields, *model);
  request.params.prompt_field = prompt_field;
  refuse_best_of(request.params);
  request.prompts = std::move(prompts);
  LlamaOptions options;
  options.n_probs = static_cast<int>(
      fields.integer("n_probs", 0, 1000, "a whole number from 0 to 1000").value_or(0));
  options.return_tokens = fields.boolean("return_tokens").value_or(false);
  options.one_prompt = one_prompt;
  request.params.sampling.top_logprobs = options.n_probs;
  for (const std::vector<Token>& ids : request.prompts) {
    options.prompts.push_back(model->text.tokenizer.decode(ids, {.skip_special = false}));
  }
  const auto unknown = fields.unknown();
  call.app.refuse_unknown(unknown);
  request.id = new_id("cmpl-");
  request.format =
      std::make_unique<LlamaFormat>(request.id, model, request.params, std::move(options));
  Response response = call.app.generate(std::move(request), call.request);
  call.app.note_ignored(unknown, response);
  return response;
}

Response llama_completion(const RouteCall& call) {
  const json::object body = parse_body(call.request.body);
  Fields fields(body);
  const auto model = call.app.model(fields.text("model").value_or(""));
  auto prompts = parse_prompts(fields, "prompt", *model);
  const json::value* prompt = fields.find("prompt");
  const bool one = prompts.size() == 1 && !(prompt->is_array() && !prompt->get_array().empty() &&
                                            !prompt->get_array().front().is_number());
  return answer_llama(call, fields, model, std::move(prompts), one, "prompt");
}

}  // namespace quince::server
