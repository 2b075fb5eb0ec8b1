// GateState's counters as Prometheus reads them. Keys go by their names.
#include <iterator>

#include <fmt/format.h>

#include "gateway/gate_state.h"

namespace quince::gateway {

namespace {

std::string_view outcome_text(Outcome outcome) {
  switch (outcome) {
    case Outcome::answered:
      return "answered";
    case Outcome::client_error:
      return "client_error";
    case Outcome::too_long:
      return "too_long";
    case Outcome::not_reached:
      return "not_reached";
    case Outcome::unavailable:
      return "unavailable";
    case Outcome::failed:
      return "failed";
    case Outcome::refused_us:
      return "refused_us";
    case Outcome::broke:
      return "broke";
    case Outcome::slow:
      return "slow";
    case Outcome::died:
      return "died";
    case Outcome::abandoned:
      return "abandoned";
  }
  return "";
}

int number(Breaker::State state) {
  switch (state) {
    case Breaker::State::closed:
      return 0;
    case Breaker::State::half_open:
      return 1;
    case Breaker::State::open:
      return 2;
  }
  return 2;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

class Page {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    fmt::format_to(
        std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <typename Number>
  void row(const Labels& labels, Number value, std::string_view suffix = "") {
    text_.append(name_).append(suffix);
    char before = '{';
    for (const auto& [name, label] : labels) {
      text_ += std::exchange(before, ',');
      text_.append(name).append("=\"").append(escaped(label)).append("\"");
    }
    fmt::format_to(std::back_inserter(text_), "{} {}\n", labels.empty() ? "" : "}", value);
  }
  std::string take() {
    return std::move(text_);
  }

 private:
  std::string_view name_;
  std::string text_;
};

void key_rows(Page& page, const std::map<std::string, std::shared_ptr<KeyState>>& keys) {
  page.family("quince:key_requests_total", "counter", "Requests that were let in, by key");
  for (const auto& [name, key] : keys) {
    page.row({{"key", name}}, key->requests);
  }
  page.family("quince:key_requests_running", "gauge", "Requests under way, by key");
  for (const auto& [name, key] : keys) {
    page.row({{"key", name}}, key->limits.running());
  }
  page.family("quince:key_refused_total", "counter", "Requests refused, by key and limit");
  for (const auto& [name, key] : keys) {
    for (const auto& [reason, count] : key->refused) {
      page.row({{"key", name}, {"reason", reason}}, count);
    }
  }
  page.family("quince:key_tokens_total", "counter", "Tokens of prompts and answers, by key");
  for (const auto& [name, key] : keys) {
    page.row({{"key", name}, {"kind", "prompt"}}, key->prompt_tokens);
    page.row({{"key", name}, {"kind", "generation"}}, key->generated_tokens);
  }
}

void first_byte_rows(Page& page, const std::string& name, const Seconds& seconds) {
  for (size_t i = 0; i < Seconds::kBounds.size(); ++i) {
    const std::string bound = fmt::format("{}", Seconds::kBounds[i]);
    page.row({{"upstream", name}, {"le", bound}}, seconds.counts[i], "_bucket");
  }
  page.row({{"upstream", name}, {"le", "+Inf"}}, seconds.count, "_bucket");
  page.row({{"upstream", name}}, seconds.sum, "_sum");
  page.row({{"upstream", name}}, seconds.count, "_count");
}

void upstream_rows(
    Page& page, const std::map<std::string, std::shared_ptr<UpstreamState>>& upstreams, Time now) {
  page.family("quince:breaker_state", "gauge", "0: closed, 1: half open, 2: open");
  for (const auto& [name, upstream] : upstreams) {
    page.row({{"upstream", name}}, number(upstream->breaker.state(now)));
  }
  page.family("quince:upstream_healthy", "gauge", "Whether the last health check succeeded");
  for (const auto& [name, upstream] : upstreams) {
    page.row({{"upstream", name}}, upstream->well ? 1 : 0);
  }
  page.family("quince:upstream_requests_running", "gauge", "Requests under way there");
  for (const auto& [name, upstream] : upstreams) {
    page.row({{"upstream", name}}, upstream->in_flight);
  }
  page.family("quince:upstream_requests_total", "counter", "Requests that ended, by outcome");
  for (const auto& [name, upstream] : upstreams) {
    for (const auto& [outcome, count] : upstream->outcomes) {
      page.row({{"upstream", name}, {"outcome", outcome_text(outcome)}}, count);
    }
  }
  page.family("quince:upstream_retries_total", "counter", "Requests sent elsewhere again");
  for (const auto& [name, upstream] : upstreams) {
    page.row({{"upstream", name}}, upstream->retries);
  }
  page.family(
      "quince:upstream_first_byte_seconds", "histogram", "From asking until the answer began");
  for (const auto& [name, upstream] : upstreams) {
    first_byte_rows(page, name, upstream->first_bytes);
  }
}

void model_rows(Page& page, const std::map<std::string, std::shared_ptr<ModelState>>& models) {
  page.family("quince:model_requests_running", "gauge", "Requests that have a place, by model");
  for (const auto& [name, model] : models) {
    page.row({{"model", name}}, model->queue.running());
  }
  page.family("quince:model_requests_waiting", "gauge", "Requests that wait for one, by model");
  for (const auto& [name, model] : models) {
    page.row({{"model", name}}, model->queue.waiting());
  }
  page.family("quince:model_refused_total", "counter", "Requests refused: the queue was full");
  for (const auto& [name, model] : models) {
    page.row({{"model", name}}, model->refused);
  }
}

}  // namespace

std::string GateState::metrics_text() const {
  Page page;
  key_rows(page, keys_);
  upstream_rows(page, upstreams_, options.now());
  model_rows(page, models_);
  page.family("quince:fallbacks_total", "counter", "Requests that another model answered");
  for (const auto& [pair, count] : fallbacks) {
    page.row({{"model", pair.first}, {"to", pair.second}}, count);
  }
  return page.take();
}

}  // namespace quince::gateway
