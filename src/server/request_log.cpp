#include "server/request_log.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/file_helper.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "base/error.h"
#include "base/json_text.h"
#include "server/app.h"
#include "tokenizer/utf8.h"

namespace quince::server {

namespace json = boost::json;

namespace {

constexpr size_t kMostWaiting = 8192;  // lines
constexpr const char* kIdHeader = "X-Request-Id";

// "2026-11-30T14:05:09.123Z"
std::string now_text() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto fraction =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format(
      "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
      parts.tm_year + 1900,
      parts.tm_mon + 1,
      parts.tm_mday,
      parts.tm_hour,
      parts.tm_min,
      parts.tm_sec,
      fraction);
}

std::string word_of(const json::value& value) {
  const json::string* text = value.if_string();
  const auto plain = [](unsigned char c) { return c > 32 && c != '"' && c != '=' && c < 127; };
  return text != nullptr && !text->empty() && std::all_of(text->begin(), text->end(), plain)
             ? std::string(*text)
             : compact_json(value);
}

std::string_view level_of(int status) {
  return status >= 500 ? "error" : status >= 400 ? "warning" : "info";
}

// A file that can be opened again while lines come.
class LogFile : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LogFile(const std::string& path) : path_(path), file_(open()) {}

  void reopen() {
    auto fresh = open();
    const std::scoped_lock lock(mutex_);
    file_->flush();
    file_ = std::move(fresh);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& line) override {
    spdlog::memory_buf_t text;
    formatter_->format(line, text);
    file_->write(text);
  }
  void flush_() override {
    file_->flush();
  }

 private:
  std::unique_ptr<spdlog::details::file_helper> open() const {
    auto file = std::make_unique<spdlog::details::file_helper>();
    try {
      file->open(path_, false);
    } catch (const spdlog::spdlog_ex& error) {
      throw UserError("log {}: cannot be written ({})", path_, error.what());
    }
    return file;
  }

  const std::string path_;
  std::unique_ptr<spdlog::details::file_helper> file_;
};

}  // namespace

struct RequestLog::Impl {
  LogFormat format;
  bool prompts;
  std::shared_ptr<spdlog::details::thread_pool> thread =
      std::make_shared<spdlog::details::thread_pool>(kMostWaiting, 1);
  std::shared_ptr<spdlog::async_logger> logger;
  std::shared_ptr<LogFile> file;  // null: standard error
};

RequestLog::RequestLog(LogFormat format, bool prompts, const std::string& path)
    : impl_(std::make_unique<Impl>()) {
  impl_->format = format;
  impl_->prompts = prompts;
  spdlog::sink_ptr sink;
  if (path.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    sink = impl_->file = std::make_shared<LogFile>(path);
  }
  impl_->logger = std::make_shared<spdlog::async_logger>(
      "requests", std::move(sink), impl_->thread, spdlog::async_overflow_policy::overrun_oldest);
  impl_->logger->set_pattern("%v");
  impl_->logger->flush_on(spdlog::level::info);
}

RequestLog::~RequestLog() = default;

void RequestLog::reopen() {
  if (impl_->file) {
    impl_->file->reopen();
  }
}

void RequestLog::add(std::string_view level, std::string_view event, const json::object& fields) {
  std::string line;
  if (impl_->format == LogFormat::json) {
    json::object all{{"time", now_text()}, {"level", level}, {"event", event}};
    for (const auto& field : fields) {
      all[field.key()] = field.value();
    }
    line = compact_json(all);
  } else {
    line = fmt::format("{} {} {}", now_text(), level, event);
    for (const auto& field : fields) {
      line += fmt::format(" {}={}", std::string_view(field.key()), word_of(field.value()));
    }
  }
  impl_->logger->info("{}", line);
}

void RequestLog::responded(const HttpRequest& request, Response& response) {
  std::string id;
  for (const auto& [name, value] : response.headers) {
    id = name == kIdHeader ? value : id;
  }
  if (id.empty()) {
    id = new_id("req_");
    response.headers.emplace_back(kIdHeader, id);
  }
  json::object fields{
      {"request_id", id},
      {"method", to_valid_utf8(request.method)},
      {"path", to_valid_utf8(request.path)},
      {"status", response.status},
      {"request_bytes", request.body.size()}};
  if (impl_->prompts && !request.body.empty()) {
    fields["body"] = to_valid_utf8(request.body);
  }
  add(level_of(response.status), "request", fields);
}

class RequestLog::Observer : public GenerationObserver {
 public:
  Observer(
      RequestLog& log, std::string id, int prompt_tokens, std::unique_ptr<GenerationObserver> inner)
      : log_(log), id_(std::move(id)), prompt_tokens_(prompt_tokens), inner_(std::move(inner)) {}

  void tokens(int count) override {
    tokens_ += count;
    inner_->tokens(count);
  }

  void end(const AnswerEnd& end) override {
    inner_->end(end);
    log_.add(
        "info",
        "answer",
        {{"request_id", id_},
         {"finish_reason", end.finish_reason},
         {"prompt_tokens", prompt_tokens_},
         {"cached_tokens", end.stats.cached_tokens},
         {"tokens", end.tokens},
         {"queue_ms", end.stats.queue_seconds * 1e3},
         {"prompt_ms", end.stats.prompt_seconds * 1e3},
         {"generation_ms", end.stats.generation_seconds * 1e3}});
  }

  void failed() override {
    inner_->failed();
    broke_off("error", "error");
  }
  void gone() override {
    inner_->gone();
    broke_off("info", "abort");
  }

 private:
  void broke_off(std::string_view level, std::string_view reason) {
    log_.add(
        level,
        "answer",
        {{"request_id", id_},
         {"finish_reason", reason},
         {"prompt_tokens", prompt_tokens_},
         {"tokens", tokens_}});
  }

  RequestLog& log_;
  std::string id_;
  int prompt_tokens_;
  int tokens_ = 0;
  std::unique_ptr<GenerationObserver> inner_;
};

std::unique_ptr<GenerationObserver> RequestLog::observe(
    std::string id, int prompt_tokens, std::unique_ptr<GenerationObserver> inner) {
  return std::make_unique<Observer>(*this, std::move(id), prompt_tokens, std::move(inner));
}

}  // namespace quince::server
