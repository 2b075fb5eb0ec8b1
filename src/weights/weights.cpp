#include "weights/weights.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"

namespace quince {

Weights::Weights(
    std::vector<TensorView> tensors, std::string source, boost::json::object quantization)
    : source_(std::move(source)), quantization_(std::move(quantization)) {
  for (TensorView& tensor : tensors) {
    put(std::move(tensor));
  }
}

TensorView Weights::take(std::string_view name) {
  auto tensor = maybe(name);
  if (!tensor) {
    throw UserError("{}: missing in {}", name, source_);
  }
  return std::move(*tensor);
}

TensorView Weights::take(std::string_view name, const std::vector<int64_t>& shape) {
  TensorView tensor = take(name);
  if (tensor.shape != shape) {
    throw UserError(
        "{}: has shape {} in {}, want {}",
        name,
        shape_text(tensor.shape),
        source_,
        shape_text(shape));
  }
  return tensor;
}

std::optional<TensorView> Weights::maybe(std::string_view name) {
  const auto at = tensors_.find(name);
  if (at == tensors_.end()) {
    return std::nullopt;
  }
  TensorView tensor = std::move(at->second);
  tensors_.erase(at);
  return tensor;
}

bool Weights::has(std::string_view name) const {
  return tensors_.find(name) != tensors_.end();
}

void Weights::rename(std::string_view from, std::string_view to) {
  TensorView tensor = take(from);
  tensor.name = to;
  put(std::move(tensor));
}

void Weights::drop(std::string_view name) {
  maybe(name);
}

void Weights::put(TensorView tensor) {
  std::string name = tensor.name;
  const auto [at, is_new] = tensors_.try_emplace(std::move(name), std::move(tensor));
  if (!is_new) {
    throw UserError("{}: is twice in {}", at->first, source_);
  }
}

std::vector<std::string> Weights::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) {
    names.push_back(name);
  }
  return names;
}

void Weights::check_all_taken() const {
  if (tensors_.empty()) {
    return;
  }
  std::vector<std::string> left = names();
  const size_t count = left.size();
  left.resize(std::min<size_t>(count, 10));
  throw UserError(
      "{}: holds {} tensor{} that this architecture does not use: {}{}",
      source_,
      count,
      count == 1 ? "" : "s",
      fmt::join(left, ", "),
      count > left.size() ? ", ..." : "");
}

const std::string& Weights::source() const {
  return source_;
}

const boost::json::object& Weights::quantization() const {
  return quantization_;
}

}  // namespace quince
