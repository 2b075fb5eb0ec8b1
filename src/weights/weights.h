// The tensors of one model, handed out by name to the layers that own them. Every tensor must be
// taken exactly once or be ignored by name: what is left over is an error that lists names.
// One thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "weights/model_files.h"

namespace quince {

class Weights {
 public:
  // source: named in errors. quantization: config.json's "quantization" object or {} (group_size,
  // bits, mode, and per-path overrides: an object, or false for a layer left plain).
  Weights(std::vector<TensorView> tensors, std::string source, boost::json::object quantization);

  // Throws UserError "model.layers.0.self_attn.q_proj.weight: missing in <source>".
  TensorView take(std::string_view name);
  // Also checks the shape; the error gives both.
  TensorView take(std::string_view name, const std::vector<int64_t>& shape);
  std::optional<TensorView> maybe(std::string_view name);
  bool has(std::string_view name) const;

  // A model file's repair step: rename, drop, replace.
  void rename(std::string_view from, std::string_view to);
  void drop(std::string_view name);  // no effect when absent
  void put(TensorView tensor);
  std::vector<std::string> names() const;  // those not yet taken, sorted

  // Throws UserError naming up to 10 tensors that nobody took.
  void check_all_taken() const;

  const std::string& source() const;
  const boost::json::object& quantization() const;

 private:
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::string source_;
  boost::json::object quantization_;
};

}  // namespace quince
