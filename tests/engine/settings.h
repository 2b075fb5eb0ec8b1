// The kinds of caches that sequences of real graphs can have.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/requests.h"
#include "models/tiny_model.h"
#include "sanitizers/build.h"

namespace quince::test {

struct CacheSetting {
  std::string model;
  KernelSet kernels = KernelSet::native;
  std::optional<int> max_size;
  std::optional<KvFormat> format;
};

inline std::vector<CacheSetting> cache_settings() {
  return {
      {"llama", KernelSet::native, {}, {}},
      {"llama", KernelSet::mlx, {}, {}},
      {"gemma3", KernelSet::native, {}, {}},
      {"gemma3", KernelSet::mlx, {}, {}},
      {"llama", KernelSet::native, 90, {}},
      {"llama", KernelSet::mlx, 90, {}},
      {"gemma3", KernelSet::mlx, {}, KvFormat::q8},
      {"gemma3", KernelSet::native, {}, KvFormat::q8},
      {"llama", KernelSet::native, 90, KvFormat::q4}};
}

inline std::string cache_setting_name(const CacheSetting& setting) {
  return setting.model + (setting.kernels == KernelSet::mlx ? "_mlx" : "_native") +
         (setting.max_size ? "_rotating" : "") + (setting.format ? "_coded" : "");
}

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for this name.
inline void PrintTo(const CacheSetting& setting, std::ostream* out) {
  *out << cache_setting_name(setting);
}

// MLX's own operations take minutes under the address sanitizer: one kind of cache stands for them.
inline bool for_this_build(const CacheSetting& setting) {
  return !kSanitized || setting.kernels == KernelSet::native ||
         (!kThreadSanitizer && setting.model == "llama" && !setting.max_size);
}

inline void skip_if_not_for_this_build(const CacheSetting& setting) {
  if (!for_this_build(setting)) {
    GTEST_SKIP()
        << "under the thread sanitizer all that libmlx and its BLAS order looks like races; "
           "under the address sanitizer one composed cache stands for all";
  }
}

// A ring that has turned cannot be shared.
inline bool shares_after_rotation(const CacheSetting& setting) {
  return !setting.max_size || setting.kernels == KernelSet::native;
}

// With heads that are wide enough for MLX's groups, where keys and values are to be in these.
inline Golden golden_for(const CacheSetting& setting) {
  Golden golden = load_golden(setting.model);
  if (!setting.format || setting.kernels == KernelSet::native) {
    return golden;
  }
  golden.config["head_dim"] = 2 * golden.config.at("head_dim").as_int64();
  for (auto& item : golden.shapes) {
    const std::string name = item.key();
    boost::json::array& shape = item.value().as_array();
    const auto is = [&name](const char* part) { return name.find(part) != std::string::npos; };
    if (is("q_proj") || is("k_proj") || is("v_proj") || is("q_norm") || is("k_norm")) {
      shape.front() = 2 * shape.front().as_int64();
    } else if (is("o_proj.weight")) {
      shape.back() = 2 * shape.back().as_int64();
    }
  }
  return golden;
}

inline std::unique_ptr<Engine> make_engine(const CacheSetting& setting, EngineOptions options) {
  options.cache.max_size = setting.max_size;
  options.cache.keys = options.cache.values = setting.format;
  options.context_length = 600;
  return std::make_unique<Engine>(
      [setting] { return load_model(golden_for(setting).files(), load_options(setting.kernels)); },
      options);
}

inline std::vector<int32_t> ask(
    Engine& engine, const std::vector<int32_t>& prompt, int count, bool cache_prompt = true) {
  RequestOptions options;
  options.cache_prompt = cache_prompt;
  TokenStream stream = engine.submit(prompt, greedy(count), options);
  return collect(stream);
}

inline std::vector<int32_t> random_tokens(std::mt19937& random, size_t n, int vocab) {
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % static_cast<unsigned>(vocab));
  }
  return tokens;
}

}  // namespace quince::test
