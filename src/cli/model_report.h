// What is in a model, as `quince inspect` tells it: gathered once, shown as text or as JSON. Works
// for every model that can be opened, also for architectures that cannot be run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "cli/memory_plan.h"
#include "cli/model_glance.h"
#include "system/memory.h"
#include "weights/model_files.h"

namespace quince::cli {

struct TensorRow {
  std::string name;
  std::string type;            // "Q4_K", "BF16", "affine 4-bit g64"
  std::vector<int64_t> shape;  // logical, also of packed MLX matrices
  int64_t elements = 0;
  uint64_t bytes = 0;  // in the file, scales and biases included
  double bits = 0;     // bytes * 8 / elements
};

struct NeedRow {
  int64_t context = 0;
  KvFormat kv = KvFormat::f16;
  uint64_t kv_bytes = 0;
  uint64_t total = 0;
};

struct ModelReport {
  std::string model;
  std::string path;
  std::string container;
  std::string architecture;               // model_type; "unknown" when the file does not say
  std::optional<std::string> cannot_run;  // why, when Quince cannot run it
  int64_t parameters = 0;
  uint64_t file_bytes = 0;    // of all tensors
  uint64_t held_bytes = 0;    // in memory with the native kernels
  int64_t context = 0;        // trained; 0: unknown
  boost::json::object shape;  // layers, hidden_size, heads, ... as far as known
  std::vector<TensorRow> tensors;

  std::string tokenizer;  // "BPE, byte-level"; why it cannot be read otherwise
  int64_t vocabulary = 0;
  std::optional<int32_t> bos;
  bool add_bos = false;
  std::vector<int32_t> end_tokens;
  std::map<int32_t, std::string> token_texts;  // of bos and the end tokens
  std::vector<std::string> special_tokens;
  std::vector<ChatTemplateSource> templates;
  boost::json::object sampling;  // what the model's makers recommend, as in generation_config.json

  std::vector<KvLayer> kv;
  bool kv_exact = false;  // from the decoder itself, not guessed from the config
  uint64_t workspace = 0;
  std::vector<NeedRow> needs;
  std::vector<std::string> notes;
  boost::json::object metadata;
  boost::json::object config;
};

struct ReportOptions {
  std::vector<int64_t> contexts;  // empty: some usual ones up to the trained context
  std::vector<KvFormat> kv = {KvFormat::f16};
};

ModelReport make_report(ModelGlance glance, const std::string& model, const ReportOptions& options);

struct TextView {
  bool tensors = false;     // every tensor, not only a summary by type
  bool metadata = false;    // every key of the file
  bool templates = false;   // the templates' whole text
  uint64_t memory = 0;      // of the machine the model is to fit in
  std::string memory_name;  // "24 GB", "this machine's 24 GB"
};
std::string to_text(const ModelReport& report, const TextView& view);
boost::json::object to_json(const ModelReport& report, uint64_t memory);

// "32k", "131072 = 128k", "500".
std::string context_name(int64_t tokens);

}  // namespace quince::cli
