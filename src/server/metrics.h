// Counters, gauges and histograms in Prometheus' text form, under vLLM's names with the prefix
// "quince:"; llama-server's names beside them. Any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "server/generation.h"

namespace quince::server {

class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Of one request; must not outlive this.
  std::unique_ptr<GenerationObserver> observe(int prompt_tokens);
  void responded(int status);
  void embedded(size_t tokens);  // of the texts of one request

  struct Gauges {
    std::string model;  // "": none is loaded
    EngineStats engine;
    int64_t kv_tokens_at_most = 0;
    size_t model_bytes = 0;
    size_t resident_bytes = 0;
    int connections = 0;
  };
  std::string text(const Gauges& gauges);

 private:
  struct Impl;
  class Observer;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quince::server
