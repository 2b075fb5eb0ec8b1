#include "cli/http_service.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/say.h"
#include "cli/terminal.h"
#include "server/request_log.h"

namespace quince::cli {

Signals::Signals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGINT);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  thread_ = std::thread([this] { watch(); });
}

Signals::~Signals() {
  over_ = true;
  pthread_kill(thread_.native_handle(), SIGINT);
  thread_.join();
  pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
}

Signals::Hangup Signals::on_hangup(std::function<void()> reload) {
  set_reload(std::move(reload));
  return Hangup(*this);
}

void Signals::set_reload(std::function<void()> reload) {
  const std::scoped_lock lock(reloading_);
  reload_ = std::move(reload);
}

bool Signals::wait(int count, std::optional<double> seconds) {
  std::unique_lock lock(mutex_);
  const auto enough = [&] { return count_ >= count; };
  if (!seconds) {
    changed_.wait(lock, enough);
    return true;
  }
  return changed_.wait_for(lock, std::chrono::duration<double>(*seconds), enough);
}

void Signals::watch() {
  int signal = 0;
  while (sigwait(&set_, &signal) == 0 && !over_) {
    take(signal);
  }
}

void Signals::take(int signal) {
  if (signal == SIGHUP) {
    const std::scoped_lock lock(reloading_);
    if (reload_) {
      reload_();
    }
    return;
  }
  if (!begun_) {
    _exit(128 + signal);
  }
  const std::scoped_lock lock(mutex_);
  ++count_;
  changed_.notify_all();
}

std::unique_ptr<server::GatewayService> make_gateway(
    const ServeOptions& options, std::vector<std::string> local_models) {
  if (!options.gateway_config) {
    return nullptr;
  }
  server::GatewayService::Options gateway;
  gateway.config = *options.gateway_config;
  gateway.local_models = std::move(local_models);
  gateway.log = [](const std::string& line) { say("gateway: {}\n", printable(line)); };
  return std::make_unique<server::GatewayService>(std::move(gateway));
}

void reload(
    const ServeOptions& options,
    server::HttpServer& http,
    server::App& app,
    server::GatewayService* gateway) {
  if (gateway != nullptr) {
    gateway->reload();
  }
  const auto again = [](const std::string& what, const auto& read) {
    try {
      read();
      say("{}: reloaded\n", printable(what));
    } catch (const UserError& error) {
      say("not reloaded, all stays as it was: {}\n", printable(error.what()));
    }
  };
  const bool certificate = !options.http.certificate_file.empty();
  if (certificate) {
    again(options.http.certificate_file, [&] { http.reload_certificate(); });
  }
  const bool keys = options.key_file && *options.key_file != "-";  // standard input has ended
  if (keys) {
    again(*options.key_file, [&] { app.set_api_keys(all_keys(options)); });
  }
  const bool log = options.log_file && app.options().log;
  if (log) {  // whoever turns logs over has moved the file away
    again(*options.log_file, [&] { app.options().log->reopen(); });
  }
  if (gateway == nullptr && !certificate && !keys && !log) {
    say("SIGHUP: there is nothing to read again\n");
  }
}

namespace {

// What runs may end, for so long, and unless a second signal comes.
void end(
    server::HttpServer& http, server::App& app, Signals& signals, const ServeOptions& options) {
  if (!options.quiet) {
    say("ending: no new requests are taken; a second signal ends at once\n");
  }
  const auto drain = [&](double seconds, bool hurry) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!http.drain(std::chrono::milliseconds(1)) && std::chrono::steady_clock::now() < until &&
           !(hurry && signals.wait(2, 0.02))) {
    }
  };
  drain(options.drain_seconds, true);
  app.active().cancel_all();
  constexpr double kLastWords = 1;  // seconds for what is cut off to say so
  drain(kLastWords, false);
}

}  // namespace

void serve_until_signal(
    server::HttpServer& http,
    server::App& app,
    Signals& signals,
    const ServiceNotifier& service,
    const ServeOptions& options) {
  signals.wait(1);
  service.ending();
  end(http, app, signals, options);
}

}  // namespace quince::cli
