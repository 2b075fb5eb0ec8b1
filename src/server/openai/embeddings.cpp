// POST /v1/embeddings: vectors of texts, of unit length.
#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <memory>
#include <utility>

#include "server/base64.h"
#include "server/errors.h"
#include "server/openai/format.h"
#include "server/openai/prompts.h"
#include "server/routes.h"

namespace quince::server {

namespace json = boost::json;

namespace {

constexpr size_t kMostInputs = 2048;  // as OpenAI

struct EmbeddingForm {
  bool base64 = false;
  size_t dimensions = 0;  // of the vectors' beginning; 0: all
  bool normalize = true;
};

// Euclidean length 1. The zero vector stays what it is.
void normalize(std::vector<float>& vector) {
  double squares = 0;
  for (const float value : vector) {
    squares += static_cast<double>(value) * value;
  }
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
  for (float& value : vector) {
    value = static_cast<float>(value * scale);
  }
}

// Little-endian f32, whatever this machine is.
std::string encoded(const std::vector<float>& vector) {
  std::string bytes;
  bytes.reserve(vector.size() * sizeof(float));
  for (const float value : vector) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) {
      bytes += static_cast<char>(bits >> shift & 0xff);
    }
  }
  return base64(bytes);
}

std::string listed(const std::vector<float>& vector) {
  std::string out = "[";
  for (const float value : vector) {
    fmt::format_to(
        std::back_inserter(out),
        "{}{}",
        out.size() == 1 ? "" : ",",
        std::isfinite(value) ? value : 0.0f);
  }
  return out + "]";
}

class EmbeddingResponse : public PendingResponse {
 public:
  EmbeddingResponse(
      std::shared_ptr<ServedModel> model, std::shared_ptr<EmbeddingJob> job, EmbeddingForm form)
      : model_(std::move(model)), job_(std::move(job)), form_(form) {}
  ~EmbeddingResponse() override {
    job_->cancel();
  }

  void start(std::function<void()> notify) override {
    job_->on_ready(std::move(notify));
  }

  std::optional<Response> poll() override {
    if (!job_->ready()) {
      return std::nullopt;
    }
    try {
      return whole(job_->take());
    } catch (...) {
      return error_response(report(std::current_exception()), ErrorStyle::openai);
    }
  }

 private:
  // Written by hand: on the I/O thread there is no time for a tree of a million numbers.
  Response whole(std::vector<std::vector<float>> vectors) const {
    std::string body = R"({"object":"list","data":[)";
    for (size_t i = 0; i < vectors.size(); ++i) {
      std::vector<float>& vector = vectors[i];
      if (form_.dimensions > 0) {
        vector.resize(form_.dimensions);
      }
      if (form_.normalize) {
        normalize(vector);
      }
      fmt::format_to(
          std::back_inserter(body),
          R"({}{{"object":"embedding","index":{},"embedding":)",
          i == 0 ? "" : ",",
          i);
      body += form_.base64 ? "\"" + encoded(vector) + "\"" : listed(vector);
      body += '}';
    }
    size_t tokens = 0;
    for (const std::vector<Token>& input : job_->inputs()) {
      tokens += input.size();
    }
    body += "],\"model\":" + json_text(model_->id);
    body += fmt::format(R"(,"usage":{{"prompt_tokens":{0},"total_tokens":{0}}}}})", tokens);
    return {.body = std::move(body)};
  }

  std::shared_ptr<ServedModel> model_;
  std::shared_ptr<EmbeddingJob> job_;
  EmbeddingForm form_;
};

EmbeddingForm parse_form(Fields& fields, const ServedModel& model) {
  EmbeddingForm form;
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    throw bad_field("encoding_format", "encoding_format is \"{}\", want float or base64", format);
  }
  form.base64 = format == "base64";
  const int width = model.engine->info().hidden_size;
  const std::string wanted = "a whole number from 1 to " + std::to_string(width);
  form.dimensions = static_cast<size_t>(fields.integer("dimensions", 1, width, wanted).value_or(0));
  form.normalize = fields.boolean("normalize").value_or(true);
  return form;
}

Pooling parse_pooling(Fields& fields, const ServedModel& model) {
  const auto word = fields.text("pooling");
  if (word && *word != "last" && *word != "mean") {
    throw bad_field("pooling", "pooling is \"{}\", want last or mean", *word);
  }
  return !word ? model.pooling : *word == "mean" ? Pooling::mean : Pooling::last;
}

void refuse_empty(const json::value* input) {
  const auto empty = [](const json::value& value) {
    return (value.is_string() && value.get_string().empty()) ||
           (value.is_array() && value.get_array().empty());
  };
  const json::array* list = input != nullptr ? input->if_array() : nullptr;
  if (input != nullptr &&
      (empty(*input) || (list != nullptr && std::any_of(list->begin(), list->end(), empty)))) {
    throw bad_field("input", "input is empty, or holds an empty text: want something to embed");
  }
}

// What is too long is the client's to shorten, unless it has said how.
void fit(Fields& fields, std::vector<std::vector<Token>>& inputs, int context) {
  const bool cut = fields.boolean("truncate").value_or(false);
  const auto keep = fields.integer(
      "truncate_prompt_tokens", -1, context, "-1 (what fits) or a number of tokens to keep");
  const auto room = static_cast<size_t>(keep && *keep > 0 ? *keep : context);
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Token>& ids = inputs[i];
    if (ids.size() <= room) {
      continue;
    }
    if (keep) {  // its last tokens, as with prompts
      ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(room));
    } else if (cut) {
      ids.resize(room);
    } else {
      throw ApiError(
          400,
          "invalid_request_error",
          fmt::format(
              "input {} has {} tokens and the context holds {}: shorten it, or ask for "
              "\"truncate\": "
              "true",
              i,
              ids.size(),
              room),
          "input",
          "context_length_exceeded");
    }
  }
}

}  // namespace

Response embeddings(const RouteCall& call) {
  const json::object body = parse_body(call.request.body);
  Fields fields(body);
  const auto model = call.app.model(fields.text("model").value_or(""));
  const EmbeddingForm form = parse_form(fields, *model);
  const Pooling pooling = parse_pooling(fields, *model);
  refuse_empty(fields.find("input"));
  std::vector<std::vector<Token>> inputs = parse_prompts(fields, "input", *model, kMostInputs);
  fit(fields, inputs, model->engine->context_length());
  fields.text("user");
  const auto unknown = fields.unknown();
  call.app.refuse_unknown(unknown);
  size_t tokens = 0;
  for (const std::vector<Token>& input : inputs) {
    tokens += input.size();
  }
  auto job = model->engine->embed(std::move(inputs), pooling);
  call.app.count_embedded(tokens);
  Response response;
  response.pending = std::make_unique<EmbeddingResponse>(model, std::move(job), form);
  call.app.note_ignored(unknown, response);
  return response;
}

}  // namespace quince::server
