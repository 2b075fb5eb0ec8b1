// Tiny random models whose logits transformers has computed (golden/make_models.py), built in
// memory: weights are hashes of tensor name and index, the same numbers to the bit on both sides.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <mlx/mlx.h>
#include <boost/json.hpp>

#include "base/thread_pool.h"
#include "models/model.h"
#include "weights/model_files.h"
#include "weights/tensor.h"

namespace quince::test {

inline uint64_t name_seed(std::string_view name) {  // FNV-1a
  uint64_t h = 0xCBF29CE484222325;
  for (const char c : name) {
    h = (h ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  }
  return h;
}

inline uint64_t mix(uint64_t x) {  // SplitMix64's output function
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

inline float uniform(uint64_t seed, uint64_t i) {  // [-1, 1), a multiple of 2^-23
  return static_cast<float>(mix(seed + i) >> 40) / static_cast<float>(1 << 23) - 1.0f;
}

// As weight() in make_models.py.
inline std::vector<float> tiny_weight(
    const std::string& name, const std::vector<int64_t>& shape, bool plus_one) {
  const auto count = static_cast<size_t>(
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
  float scale = 1.0f;
  float middle = 0.0f;
  if (name.ends_with("norm.weight")) {
    scale = 0.25f;
    middle = plus_one ? 0.0f : 1.0f;
  } else if (name.ends_with(".bias")) {
    scale = 0.25f;
  } else if (!name.ends_with("embed_tokens.weight")) {
    while (scale * scale * static_cast<float>(shape.back()) > 4.0f) {
      scale /= 2.0f;
    }
  }
  const uint64_t seed = name_seed(name);
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) {
    out[i] = uniform(seed, i) * scale + middle;
  }
  return out;
}

inline TensorView f32_tensor(
    const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return make_tensor(name, TensorType::f32, std::move(shape), std::move(bytes));
}

struct Golden {
  std::string name;
  boost::json::object config;
  boost::json::object shapes;  // tensor name -> shape
  std::vector<int32_t> tokens;
  std::vector<float> logits;       // [tokens, vocab]
  std::vector<float> step_logits;  // of a token-by-token run, where that differs; else empty
  int vocab = 0;

  bool plus_one() const {
    return config.at("model_type").as_string().starts_with("gemma");
  }
  ModelFiles files() const {
    ModelFiles files;
    files.path = "tiny/" + name;
    files.container = "safetensors";
    files.config = config;
    for (const auto& item : shapes) {
      const auto shape = boost::json::value_to<std::vector<int64_t>>(item.value());
      const std::string tensor(item.key());
      files.tensors.push_back(f32_tensor(tensor, shape, tiny_weight(tensor, shape, plus_one())));
    }
    return files;
  }
};

// The same model in MLX's layout: every matrix whose width allows it as codes, scales and biases.
inline ModelFiles quantized_files(const Golden& golden, int bits, int group) {
  namespace mx = mlx::core;
  ModelFiles files = golden.files();
  std::vector<TensorView> tensors;
  for (const TensorView& dense : files.tensors) {
    if (dense.shape.size() != 2 || dense.columns() % group != 0) {
      tensors.push_back(dense);
      continue;
    }
    const mx::Shape shape{static_cast<int>(dense.rows()), static_cast<int>(dense.columns())};
    auto parts = mx::quantize(
        mx::array(reinterpret_cast<const float*>(dense.bytes.data()), shape, mx::float32),
        group,
        bits);
    mx::eval(parts);
    const std::string path = dense.name.substr(0, dense.name.size() - std::strlen(".weight"));
    const char* const names[] = {".weight", ".scales", ".biases"};
    for (size_t i = 0; i < 3; ++i) {
      const auto* data = parts[i].data<std::byte>();
      tensors.push_back(make_tensor(
          path + names[i],
          i == 0 ? TensorType::u32 : TensorType::f32,
          {parts[i].shape(0), parts[i].shape(1)},
          {data, data + parts[i].nbytes()}));
    }
  }
  files.tensors = std::move(tensors);
  files.config["quantization"] = {{"group_size", group}, {"bits", bits}};
  return files;
}

inline std::filesystem::path golden_folder() {
  return std::filesystem::path(QUINCE_TEST_DATA) / "models" / "golden";
}

inline std::vector<float> read_floats(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  const std::string bytes = text.str();
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

inline boost::json::object read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return boost::json::parse(text.str()).as_object();
}

inline Golden load_golden(const std::string& name) {
  const boost::json::object json = read_json(golden_folder() / (name + ".json"));
  Golden golden;
  golden.name = name;
  golden.config = json.at("config").as_object();
  golden.shapes = json.at("tensors").as_object();
  golden.tokens = boost::json::value_to<std::vector<int32_t>>(json.at("tokens"));
  golden.vocab = static_cast<int>(golden.config.at("vocab_size").as_int64());
  golden.logits = read_floats(golden_folder() / (name + ".f32"));
  const size_t one = golden.tokens.size() * static_cast<size_t>(golden.vocab);
  golden.step_logits.assign(golden.logits.begin() + static_cast<int64_t>(one), golden.logits.end());
  golden.logits.resize(one);
  return golden;
}

inline LoadOptions load_options(KernelSet kernels) {
  LoadOptions options;
  options.kernels = kernels;
  options.pool = std::make_shared<ThreadPool>(2);
  return options;
}

// One sequence's rows appended; f32 logits [rows, vocab] of all of them.
inline std::vector<float> append(Model& model, Cache& cache, const std::vector<int32_t>& tokens) {
  const int rows = static_cast<int>(tokens.size());
  std::vector<int> all(tokens.size());
  std::iota(all.begin(), all.end(), 0);
  mlx::core::array logits = model.forward(
      {mlx::core::array(tokens.begin(), {rows}, mlx::core::int32), {{&cache, rows}}, all});
  logits = mlx::core::contiguous(logits);
  logits.eval();
  return {logits.data<float>(), logits.data<float>() + logits.size()};
}

inline std::vector<float> append_chunks(
    Model& model, Cache& cache, const std::vector<int32_t>& tokens, size_t chunk) {
  std::vector<float> out;
  for (size_t i = 0; i < tokens.size(); i += chunk) {
    const auto first = tokens.begin() + static_cast<int64_t>(i);
    const auto last = tokens.begin() + static_cast<int64_t>(std::min(i + chunk, tokens.size()));
    const std::vector<float> rows = append(model, cache, {first, last});
    out.insert(out.end(), rows.begin(), rows.end());
  }
  return out;
}

inline float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0.0f;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float d = std::abs(a[i] - b[i]);
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return a.empty() ? INFINITY : most;
}

}  // namespace quince::test
