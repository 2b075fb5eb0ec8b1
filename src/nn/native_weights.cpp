#include "nn/native_weights.h"

#include <cstring>
#include <span>
#include <utility>

#include <mlx/mlx.h>

#include "base/error.h"
#include "kernels/packed_memory.h"

namespace quince {

namespace {

using kernels::PackedMatrix;
using kernels::PackSource;

// Types that kernels compute with as they are; the rest is converted when it is packed.
bool kept_as_is(TensorType type) {
  switch (type) {
    case TensorType::f32:
    case TensorType::f16:
    case TensorType::bf16:
    case TensorType::q4_0:
    case TensorType::q4_1:
    case TensorType::q5_0:
    case TensorType::q5_1:
    case TensorType::q8_0:
    case TensorType::q2_k:
    case TensorType::q3_k:
    case TensorType::q4_k:
    case TensorType::q5_k:
    case TensorType::q6_k:
      return true;
    default:
      return false;
  }
}

mlx::core::array as_array(const TensorView& view, mlx::core::Dtype dtype) {
  mlx::core::Shape shape(view.shape.begin(), view.shape.end());
  mlx::core::array out(mlx::core::allocator::malloc(view.bytes.size()), shape, dtype);
  std::memcpy(out.data<std::byte>(), view.bytes.data(), view.bytes.size());
  return out;
}

// MLX's floating-point modes (mxfp4, mxfp8, nvfp4): code times scale fits bf16 exactly.
TensorView dequantized(const MatrixSource& source) {
  namespace mx = mlx::core;
  const mx::array dense = mx::contiguous(mx::astype(
      mx::dequantize(
          as_array(source.weight, mx::uint32),
          as_array(*source.scales, mx::uint8),
          std::nullopt,
          source.layout->group,
          source.layout->bits,
          source.layout->mode),
      mx::bfloat16,
      mx::Device::cpu));
  mx::array out = dense;
  out.eval();
  std::vector<std::byte> bytes(out.nbytes());
  std::memcpy(bytes.data(), out.data<std::byte>(), bytes.size());
  return make_tensor(
      source.path + ".weight", TensorType::bf16, {source.rows, source.columns}, std::move(bytes));
}

class Loader {
 public:
  Loader(const DecoderSpec& spec, Weights& weights, const LoadOptions& options)
      : spec_(spec), weights_(weights), options_(options) {
    out_.spec = spec;
    out_.all_f32 = true;
  }

  NativeWeights run() {
    progress(0);
    table("model.embed_tokens");
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      progress(static_cast<double>(i + 1) / static_cast<double>(spec_.layers.size() + 2));
      out_.layers.push_back(layer(static_cast<int>(i)));
    }
    out_.final_norm = norm("model.norm", spec_.hidden_size);
    if (!spec_.tied_embeddings) {
      table("lm_head");
    }
    write_notes();
    progress(1);
    return std::move(out_);
  }

 private:
  struct Part {
    std::string path;
    int rows;
  };

  void progress(double share) const {
    if (options_.progress) {
      options_.progress(share);
    }
  }

  PackSource source(const std::string& path, int64_t rows, int64_t columns) {
    MatrixSource matrix = take_matrix(weights_, path, rows, columns);
    PackSource pack;
    if (!matrix.layout) {
      out_.all_f32 = out_.all_f32 && matrix.weight.type == TensorType::f32;
      if (!kept_as_is(matrix.weight.type)) {
        note(std::string(info(matrix.weight.type).name), {matrix.weight, {}, {}, 0, 0});
      }
      pack.weight = std::move(matrix.weight);
      return pack;
    }
    out_.all_f32 = false;
    if (matrix.layout->mode != "affine") {
      pack.weight = dequantized(matrix);
      note(matrix.layout->mode, pack);
      return pack;
    }
    pack.weight = std::move(matrix.weight);
    pack.scales = std::move(matrix.scales);
    pack.biases = std::move(matrix.biases);
    pack.bits = matrix.layout->bits;
    pack.group = matrix.layout->group;
    return pack;
  }

  void note(const std::string& format, const PackSource& held) {
    ++counts_[{format, PackedMatrix::packed_format(held).describe()}];
  }

  void write_notes() {
    for (const auto& [formats, count] : counts_) {
      out_.notes.push_back(fmt::format(
          "{} {} {} held as {}",
          count,
          formats.first,
          count == 1 ? "matrix" : "matrices",
          formats.second));
    }
  }

  void table(const std::string& path) {
    PackSource pack = source(path, spec_.vocab_size, spec_.hidden_size);
    out_.tables.push_back(PackedMatrix::pack(pack, *options_.pool, &arena_));
    out_.bytes += out_.tables.back().bytes();
  }

  NativeLinear linear(const std::vector<Part>& parts, int columns, bool bias) {
    NativeLinear linear;
    linear.columns = columns;
    std::vector<PackSource> sources;
    for (const Part& part : parts) {
      sources.push_back(source(part.path, part.rows, columns));
      linear.rows += part.rows;
    }
    if (auto stacked = PackedMatrix::pack_stacked(sources, *options_.pool, &arena_)) {
      linear.parts.push_back(std::move(*stacked));
    } else {
      for (const PackSource& one : sources) {
        linear.parts.push_back(PackedMatrix::pack(one, *options_.pool, &arena_));
      }
    }
    for (const PackedMatrix& part : linear.parts) {
      out_.bytes += part.bytes();
    }
    if (bias) {
      for (const Part& part : parts) {
        std::vector<float> values = vector(part.path + ".bias", part.rows);
        linear.bias.insert(linear.bias.end(), values.begin(), values.end());
      }
    }
    return linear;
  }

  std::vector<float> vector(const std::string& name, int size) {
    TensorView view = weights_.take(name, {size});
    std::vector<float> values(static_cast<size_t>(size));
    decode_rows(view, 0, 1, values.data());
    out_.bytes += values.size() * sizeof(float);
    return values;
  }

  std::vector<float> norm(const std::string& path, int size) {
    std::vector<float> values = vector(path + ".weight", size);
    if (spec_.norm_plus_one) {
      for (float& value : values) {
        value += 1.0f;
      }
    }
    return values;
  }

  NativeLayer layer(int index) {
    const DecoderSpec& s = spec_;
    const std::string at = fmt::format("model.layers.{}.", index);
    const std::string attn = at + "self_attn.";
    const std::string mlp = at + "mlp.";
    const int q_size = s.heads * s.head_dim;
    const int kv_size = s.kv_heads * s.head_dim;
    NativeLayer layer;
    layer.rope = s.layers[static_cast<size_t>(index)].rope;
    layer.window = s.layers[static_cast<size_t>(index)].window;
    layer.input_norm = norm(at + "input_layernorm", s.hidden_size);
    layer.qkv = linear(
        {{attn + "q_proj", q_size}, {attn + "k_proj", kv_size}, {attn + "v_proj", kv_size}},
        s.hidden_size,
        s.qkv_bias);
    if (s.qk_norm) {
      layer.q_norm = norm(attn + "q_norm", s.head_dim);
      layer.k_norm = norm(attn + "k_norm", s.head_dim);
    }
    layer.o = linear({{attn + "o_proj", s.hidden_size}}, q_size, s.o_bias);
    layer.mlp_norm = norm(
        at + (s.sandwich_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm"),
        s.hidden_size);
    layer.gate_up = linear(
        {{mlp + "gate_proj", s.intermediate_size}, {mlp + "up_proj", s.intermediate_size}},
        s.hidden_size,
        s.mlp_bias);
    layer.down = linear({{mlp + "down_proj", s.hidden_size}}, s.intermediate_size, s.mlp_bias);
    if (s.sandwich_norms) {
      layer.attention_out_norm = norm(at + "post_attention_layernorm", s.hidden_size);
      layer.mlp_out_norm = norm(at + "post_feedforward_layernorm", s.hidden_size);
    }
    return layer;
  }

  kernels::PackArena arena_;  // one for all matrices: small ones share huge pages
  const DecoderSpec& spec_;
  Weights& weights_;
  const LoadOptions& options_;
  NativeWeights out_;
  std::map<std::pair<std::string, std::string>, int> counts_;  // (in the file, held as) -> matrices
};

}  // namespace

NativeWeights load_native_weights(
    const DecoderSpec& spec, Weights& weights, const LoadOptions& options) {
  return Loader(spec, weights, options).run();
}

}  // namespace quince
