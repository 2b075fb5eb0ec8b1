// What `quince serve` and `quince gateway` have in common: signals, the gateway, and ending.
#pragma once

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/serve_options.h"
#include "cli/service_notifier.h"
#include "server/app.h"
#include "server/http.h"
#include "server/upstream/gateway_service.h"

namespace quince::cli {

// SIGINT, SIGTERM and SIGHUP, taken by a thread of their own: they are blocked in all others.
// Before begin() the first two end the program at once; SIGHUP never does.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  void begin() {
    begun_ = true;
  }
  // What SIGHUP does, on the thread of the signals, until the returned object goes; its end waits
  // for what is under way.
  class Hangup {
   public:
    explicit Hangup(Signals& signals) : signals_(signals) {}
    ~Hangup() {
      signals_.set_reload(nullptr);
    }
    Hangup(const Hangup&) = delete;
    Hangup& operator=(const Hangup&) = delete;

   private:
    Signals& signals_;
  };
  [[nodiscard]] Hangup on_hangup(std::function<void()> reload);
  // Until so many have come; false: not within the limit.
  bool wait(int count, std::optional<double> seconds = std::nullopt);

 private:
  void watch();
  void take(int signal);
  void set_reload(std::function<void()> reload);

  sigset_t set_{};
  std::atomic<bool> begun_ = false;
  std::atomic<bool> over_ = false;
  std::mutex reloading_;  // while it runs too
  std::function<void()> reload_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  int count_ = 0;
  std::thread thread_;
};

// The gateway that the options ask for, or null. local_models: see GatewayService. Throws
// UserError.
std::unique_ptr<server::GatewayService> make_gateway(
    const ServeOptions& options, std::vector<std::string> local_models);

// What SIGHUP does: the gateway's file, the certificate and the file of API keys are read again;
// what is no good stays as it was, and a line says so. gateway: may be null.
void reload(
    const ServeOptions& options,
    server::HttpServer& http,
    server::App& app,
    server::GatewayService* gateway);

// Waits for a signal that ends, lets what runs end, for so long, and unless a second signal comes.
void serve_until_signal(
    server::HttpServer& http,
    server::App& app,
    Signals& signals,
    const ServiceNotifier& service,
    const ServeOptions& options);

}  // namespace quince::cli
