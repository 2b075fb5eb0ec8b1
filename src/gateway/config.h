// What quince.toml says: who may ask (keys), who answers (upstreams), and which model is answered
// by whom. Plain data, not changed once it is read; any thread.
//
//   [gateway]
//   deadline = 900                    # seconds that a request may take
//
//   [keys.alice]
//   hash = "sha256:..."               # quince key new alice
//   rpm = 60
//
//   [upstreams.box]
//   url = "http://10.0.0.2:8000/v1"
//
//   [models."llama-70b"]
//   upstreams = ["box", { name = "other", weight = 2, model = "llama-3.3-70b" }]
//   fallbacks = ["llama-8b"]
//
// Every field is described where its struct has it. All times are seconds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace quince::gateway {

struct KeyConfig {
  std::string name;
  std::string hash;                 // as secret.h writes it
  int concurrency = 0;              // requests at once; 0: no limit
  int64_t rpm = 0;                  // requests a minute; 0: no limit
  int64_t tpm = 0;                  // tokens a minute, of prompts and answers; 0: no limit
  int priority = 0;                 // higher comes first where requests wait
  std::vector<std::string> models;  // that it may ask for; empty: all

  bool may_use(std::string_view model) const;
};

struct BreakerConfig {
  int failures = 5;       // one after another, then it opens
  double open = 5;        // until it is tried again; twice as long after each failed trial
  double most_open = 60;  // but no longer than this
};

struct UpstreamConfig {
  std::string name;
  std::string url;  // of its API, as clients would name it: "https://host/v1"
  bool tls = false;
  std::string host;
  int port = 0;
  std::string path;     // of the URL, without a slash at its end
  std::string key;      // sent to it (key, key_env or key_file); "": none
  std::string ca_file;  // authorities that its certificate may come from; "": the system's
  double connect_timeout = 5;
  double first_byte_timeout = 120;  // of the answer, once the request is sent
  double idle_timeout = 60;         // between two pieces of an answer
  double total_timeout = 900;
  std::string health;  // a path asked for every health_interval; "": none
  double health_interval = 10;
  BreakerConfig breaker;

  bool operator==(const UpstreamConfig& other) const;  // all that connections depend on
};

// One who answers for a model.
struct Target {
  std::string upstream;
  std::string model;  // its name there; "": the same
  int weight = 1;
};

enum class Balance { weighted, least_busy };

struct ModelConfig {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<Target> upstreams;  // none: the model is loaded here
  Balance balance = Balance::weighted;
  int concurrency = 4;  // requests at once
  int queue = 64;       // requests that may wait beside those
  double queue_timeout = 30;
  std::vector<std::string> fallbacks;  // models, tried in turn
  bool on_error = true;                // when to: nobody could answer
  bool on_context = true;              // the prompt is too long for this one
  bool on_latency = true;              // no answer had begun within latency_limit
  double latency_limit = 0;            // 0: none
};

struct Config {
  double deadline = 900;     // of a request, in all
  int retries = 2;           // of a request, where that is safe
  double retry_share = 0.2;  // of an upstream's requests, beside a few at any time
  std::map<std::string, KeyConfig, std::less<>> keys;
  std::map<std::string, UpstreamConfig, std::less<>> upstreams;
  std::map<std::string, ModelConfig, std::less<>> models;

  // By its name or an alias; null: there is none.
  const ModelConfig* model(std::string_view name) const;
  // What is said of the model that is loaded here: its fallbacks; null: nothing.
  const ModelConfig* here() const;
};

// source is what messages call the text. Throws UserError naming source, line, key, value and the
// remedy; keys that nobody knows are refused. local_models: the names of the model that is loaded
// here, which may stand in fallbacks, and of which the first may have a table with its own.
Config parse_config(
    std::string_view text,
    const std::string& source,
    const std::vector<std::string>& local_models = {});
Config read_config(
    const std::filesystem::path& path, const std::vector<std::string>& local_models = {});

}  // namespace quince::gateway
