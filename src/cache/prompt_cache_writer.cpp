#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <boost/json.hpp>

#include "base/error.h"
#include "base/file_io.h"
#include "cache/prompt_cache_file.h"
#include "cache/prompt_cache_sum.h"
#include "kernels/elementwise_bits.h"
#include "weights/safetensors.h"

namespace quince {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

struct Tensor {
  std::string name;
  TensorType type;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// The rows of a layer in the order of time: which position each is of; -1: nobody reads it.
std::vector<int64_t> positions(const PromptCacheSpec::Layer& layer, int64_t length) {
  std::vector<int64_t> out;
  if (layer.max_size == 0 || length <= layer.max_size) {
    for (int64_t p = 0; p < length; ++p) {
      out.push_back(p);
    }
    return out;
  }
  for (int64_t p = 0; p < layer.keep; ++p) {
    out.push_back(p);
  }
  const int64_t ring = length - (layer.max_size - layer.keep);
  for (int64_t p = std::min(ring, std::max(layer.first, layer.keep)); p < length; ++p) {
    out.push_back(p);
  }
  return out;
}

void encode(TensorType type, std::span<const float> from, std::byte* out) {
  if (type == TensorType::f32) {
    std::memcpy(out, from.data(), from.size_bytes());
    return;
  }
  for (size_t i = 0; i < from.size(); ++i) {
    const uint16_t bits = type == TensorType::f16 ? kernels::float_to_f16_bits(from[i])
                                                  : kernels::float_to_bf16_bits(from[i]);
    std::memcpy(out + i * 2, &bits, sizeof(bits));
  }
}

class Writer {
 public:
  Writer(const fs::path& path, const PromptCacheSpec& spec) : path_(path), spec_(spec) {
    const auto length = static_cast<int64_t>(spec.tokens.size());
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      rows_.push_back(positions(spec.layers[i], length));
      const auto rows = static_cast<int64_t>(rows_.back().size());
      for (const int which : {0, 1}) {
        add(fmt::format("{}.{}", i, which), spec.type, {1, spec.kv_heads, rows, spec.head_dim});
      }
    }
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      const PromptCacheSpec::Layer& layer = spec.layers[i];
      std::vector<int64_t> numbers{length};
      if (layer.max_size > 0) {
        numbers.insert(
            numbers.end(), {layer.keep, layer.max_size, static_cast<int64_t>(rows_[i].size())});
      }
      for (size_t n = 0; n < numbers.size(); ++n) {
        add(fmt::format("{}.{}", i, n + 2), TensorType::i32, {});
        scalars_.push_back(static_cast<int32_t>(numbers[n]));
      }
    }
  }

  void write(const std::function<bool(int, int64_t, float*, float*)>& rows) {
    std::error_code absent;
    if (const auto there = fs::status(path_, absent);
        fs::exists(there) && !fs::is_regular_file(there)) {
      throw UserError("{}: want a file to write to, this is none", path_.string());
    }
    if (const fs::path target = fs::canonical(path_, absent); !absent) {
      path_ = target;  // of a link: what it leads to is replaced, not the link
    }
    const fs::path unfinished = path_.string() + fmt::format(".part-{}", ::getpid());
    const Descriptor fd(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd) {
      fail("create it");
    }
    try {
      write_all(fd.get(), rows);
      if (::fsync(fd.get()) != 0 || ::rename(unfinished.c_str(), path_.c_str()) != 0) {
        fail("write it");
      }
    } catch (...) {
      ::unlink(unfinished.c_str());
      throw;
    }
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    const int error = errno;
    throw UserError("{}: cannot {}: {}", path_.string(), what, std::strerror(error));
  }

  void add(std::string name, TensorType type, std::vector<int64_t> shape) {
    const uint64_t begin = tensors_.empty() ? 0 : tensors_.back().end;
    const uint64_t bytes = *tensor_bytes(type, shape);
    tensors_.push_back({std::move(name), type, std::move(shape), begin, begin + bytes});
  }

  // The flattened form of [what its writer noted, classes, which tensors are numbers].
  json::object metadata() const {
    json::object out{
        {"0.model", spec_.model_name},
        {"0.tokenizer_config", "{}"},
        {"0.quince_model", spec_.model},
        {"0.quince_tokens", json::serialize(json::array(spec_.tokens.begin(), spec_.tokens.end()))},
        {kPromptCacheSum, prompt_cache_sum_text(0)},
        {"2.0", ""}};
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      out[fmt::format("1.{}", i)] = spec_.layers[i].max_size > 0 ? "RotatingKVCache" : "KVCache";
    }
    for (size_t i = 0; i < scalars_.size(); ++i) {
      const Tensor& tensor = tensors_[tensors_.size() - scalars_.size() + i];
      out[fmt::format("2.{}.0", i + 1)] = tensor.name;
      out[fmt::format("2.{}.1", i + 1)] = "scalar";
    }
    return out;
  }

  void write_all(int fd, const std::function<bool(int, int64_t, float*, float*)>& rows) const {
    json::object header{{"__metadata__", metadata()}};
    for (const Tensor& tensor : tensors_) {
      header[tensor.name] = json::object{
          {"dtype", *safetensors_dtype(tensor.type)},
          {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
          {"data_offsets", json::array{tensor.begin, tensor.end}}};
    }
    std::string head(sizeof(uint64_t), '\0');
    head += json::serialize(header);
    head.resize((head.size() + 7) / 8 * 8, ' ');
    const uint64_t size = head.size() - sizeof(uint64_t);
    std::memcpy(head.data(), &size, sizeof(size));
    PromptCacheSum sum(head);
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      write_layer(fd, head.size() + tensors_[2 * i].begin, static_cast<int>(i), rows, sum);
    }
    const std::span<const std::byte> numbers = std::as_bytes(std::span(scalars_));
    put(fd, head.size() + tensors_[2 * spec_.layers.size()].begin, numbers);
    for (size_t at = 0; at < numbers.size(); at += sizeof(int32_t)) {
      sum.add(numbers.subspan(at, sizeof(int32_t)));
    }
    const std::string text = prompt_cache_sum_text(sum.finish());
    head.replace(*prompt_cache_sum_place(head), text.size(), text);
    put(fd, 0, std::as_bytes(std::span(head)));
  }

  void write_layer(
      int fd,
      uint64_t at,
      int layer,
      const std::function<bool(int, int64_t, float*, float*)>& rows,
      PromptCacheSum& sum) const {
    const std::vector<int64_t>& its = rows_[static_cast<size_t>(layer)];
    const auto dim = static_cast<size_t>(spec_.head_dim);
    const auto heads = static_cast<size_t>(spec_.kv_heads);
    const size_t row = dim * static_cast<size_t>(info(spec_.type).bytes);
    std::vector<std::byte> keys(heads * its.size() * row);
    std::vector<std::byte> values(keys.size());
    std::vector<float> key(heads * dim);
    std::vector<float> value(heads * dim);
    for (size_t r = 0; r < its.size(); ++r) {
      if (!rows(layer, its[r], key.data(), value.data())) {
        // Of a ring that is full the oldest row, which the next token takes.
        const int64_t keep = spec_.layers[static_cast<size_t>(layer)].keep;
        if (spec_.layers[static_cast<size_t>(layer)].max_size == 0 ||
            static_cast<int64_t>(r) != keep) {
          throw UserError(
              "{}: position {} of layer {} is not there any more", path_.string(), its[r], layer);
        }
        std::fill(key.begin(), key.end(), 0.0f);
        std::fill(value.begin(), value.end(), 0.0f);
      }
      for (size_t head = 0; head < heads; ++head) {
        const size_t place = (head * its.size() + r) * row;
        encode(spec_.type, std::span(key).subspan(head * dim, dim), keys.data() + place);
        encode(spec_.type, std::span(value).subspan(head * dim, dim), values.data() + place);
      }
    }
    put(fd, at, keys);
    put(fd, at + keys.size(), values);
    sum.add(keys);
    sum.add(values);
  }

  void put(int fd, uint64_t at, std::span<const std::byte> bytes) const {
    if (!write_at(fd, at, bytes)) {
      fail("write it");
    }
  }

  fs::path path_;
  const PromptCacheSpec& spec_;
  std::vector<std::vector<int64_t>> rows_;  // of each layer
  std::vector<Tensor> tensors_;             // keys and values of all layers, then the numbers
  std::vector<int32_t> scalars_;
};

}  // namespace

void write_prompt_cache(
    const fs::path& path,
    const PromptCacheSpec& spec,
    const std::function<bool(int, int64_t, float*, float*)>& rows) {
  Writer(path, spec).write(rows);
}

}  // namespace quince
