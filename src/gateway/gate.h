// The gateway's decisions in one place: whose key it is and what it may do now, whose turn it is,
// which upstream is asked, and the counters of all that. It knows no sockets; time is given to it.
// Any thread. What it hands out (KeyUse, Place, Choice) may outlive a reload, and the Gate itself
// must outlive them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/breaker.h"
#include "gateway/clock.h"
#include "gateway/config.h"
#include "gateway/key_limits.h"
#include "gateway/retry.h"

namespace quince::gateway {

// A request that may not go on now.
class Refused : public std::runtime_error {
 public:
  Refused(int status, const std::string& code, const std::string& message, Clock::duration wait)
      : std::runtime_error(message), status(status), code(code), retry_after(wait) {}
  int status;  // 403, 429, 503
  std::string code;
  Clock::duration retry_after;  // zero: does not apply
};

struct TokenCount {
  int64_t prompt = 0;
  int64_t generated = 0;
};

// A request's use of a key, while the object lives.
class KeyUse {
 public:
  virtual ~KeyUse() = default;
  virtual const std::string& name() const = 0;  // "": no key is needed here
  virtual int priority() const = 0;
  virtual void add(const TokenCount& tokens) = 0;
  // The request has ended, before the client can know it: its next one must not find this one
  // still counted. The end of the object does it otherwise.
  virtual void done() = 0;
};

// A request's place among those of a model, or in its queue; given up when the object ends.
class Place {
 public:
  virtual ~Place() = default;
  enum class State { waiting, granted, dropped };
  virtual State state() const = 0;
};

struct UpstreamState;

// An upstream that was chosen for a request; one report() must follow.
struct Choice {
  std::shared_ptr<UpstreamState> state;  // the Gate's own
  std::shared_ptr<const UpstreamConfig> upstream;
  std::string model;  // its name there
  Breaker::Era era = 0;
};

class Gate {
 public:
  struct Options {
    std::function<Time()> now = [] { return Clock::now(); };
    std::function<void(const std::string&)> log = [](const std::string&) {};  // lines; any thread
  };
  Gate(Config config, Options options);
  ~Gate();

  // Keys, upstreams and models that stay keep their state.
  void reload(Config config);
  std::shared_ptr<const Config> config() const;

  // Null: no key of the configuration.
  std::shared_ptr<const KeyConfig> identify(std::string_view secret) const;
  // key null: none is needed. model: its name as configured, or a local model's. Throws Refused.
  std::unique_ptr<KeyUse> use_key(const KeyConfig* key, const std::string& model);

  // changed: called once, on any thread, when the place is no longer waiting; never from within.
  // Throws Refused when the queue is full.
  std::unique_ptr<Place> enter(
      const ModelConfig& model,
      const std::string& tenant,
      int priority,
      std::function<void()> changed);

  // tried: upstreams that are left out. Nothing: none may be asked now.
  std::optional<Choice> choose(const ModelConfig& model, const std::set<std::string>& tried);
  bool has_choice(const ModelConfig& model, const std::set<std::string>& tried) const;
  // first_byte: from asking until the answer began, where it did.
  void report(const Choice& choice, Outcome outcome, std::optional<Clock::duration> first_byte);
  // Until one of the model's upstreams may be asked again.
  Clock::duration retry_after(const ModelConfig& model) const;
  bool may_retry(const std::string& upstream);  // takes it from the budget
  void fell_back(const std::string& from, const std::string& to);
  void checked(const std::string& upstream, bool well);  // by a health check

  Breaker::State breaker(const std::string& upstream) const;
  // In Prometheus' text form.
  std::string metrics_text() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace quince::gateway
