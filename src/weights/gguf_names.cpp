// GGUF tensor names and Hugging Face's, for the standard decoder architectures.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "weights/gguf_config.h"
#include "weights/model_files.h"

namespace quince {

namespace {

struct NameRow {
  std::string_view gguf;
  std::string_view hf;
};

constexpr NameRow kTopNames[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};

constexpr NameRow kBlockNames[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    // gemma3 only
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

template <size_t N>
std::optional<std::string_view> look_up(const NameRow (&rows)[N], std::string_view gguf) {
  for (const NameRow& row : rows) {
    if (row.gguf == gguf) {
      return row.hf;
    }
  }
  return std::nullopt;
}

int64_t config_int(const boost::json::object& config, std::string_view key) {
  return config.at(key).as_int64();
}

// Llama's converter stores the two halves of each head's rotary pairs interleaved: logical row
// (head, half, i) lies at stored row (head, i, half).
std::vector<int32_t> interleaved_rows(int64_t rows, int64_t heads) {
  std::vector<int32_t> order(static_cast<size_t>(rows));
  const int64_t dim = rows / heads;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < dim / 2; ++i) {
      order[head * dim + i] = static_cast<int32_t>(head * dim + 2 * i);
      order[head * dim + dim / 2 + i] = static_cast<int32_t>(head * dim + 2 * i + 1);
    }
  }
  return order;
}

// A bias has no rows to reorder, so its few elements are copied into their places.
TensorView reordered_bias(const TensorView& bias, const std::vector<int32_t>& order) {
  const auto size = static_cast<size_t>(info(bias.type).bytes);
  if (info(bias.type).block != 1) {
    throw UserError("tensor {}: a bias of type {} cannot be", bias.name, info(bias.type).name);
  }
  std::vector<std::byte> bytes(bias.bytes.size());
  for (size_t i = 0; i < order.size(); ++i) {
    std::memcpy(
        bytes.data() + i * size, bias.bytes.data() + static_cast<size_t>(order[i]) * size, size);
  }
  return make_tensor(bias.name, bias.type, bias.shape, std::move(bytes));
}

void unpermute(TensorView& tensor, int64_t heads) {
  const bool is_bias = tensor.shape.size() == 1;
  const int64_t rows = is_bias ? tensor.columns() : tensor.rows();
  if (heads <= 0 || rows % (2 * heads) != 0 || rows > INT32_MAX) {
    throw UserError(
        "tensor {}: its {} rows cannot be {} attention heads", tensor.name, rows, heads);
  }
  std::vector<int32_t> order = interleaved_rows(rows, heads);
  if (is_bias) {
    tensor = reordered_bias(tensor, order);
  } else {
    tensor.row_order = std::move(order);
  }
}

// Rows (or, of a bias, elements) [first, first + count) as a tensor of their own.
TensorView row_range(const TensorView& tensor, int64_t first, int64_t count, std::string name) {
  TensorView part = tensor;
  part.name = std::move(name);
  const bool is_bias = tensor.shape.size() == 1;
  const auto rows = static_cast<uint64_t>(is_bias ? tensor.columns() : tensor.rows());
  const uint64_t row_bytes = tensor.bytes.size() / rows;
  part.shape.front() = count;
  part.bytes = tensor.bytes.subspan(
      static_cast<uint64_t>(first) * row_bytes, static_cast<uint64_t>(count) * row_bytes);
  return part;
}

// A converter may have stacked q, k and v into one tensor: they are views into it again.
void split_fused_qkv(std::vector<TensorView>& tensors, const boost::json::object& config) {
  constexpr std::string_view kFused = ".attn_qkv.";
  std::vector<TensorView> parts;
  for (const TensorView& fused : tensors) {
    const size_t at = fused.name.find(kFused);
    if (at == std::string::npos) {
      continue;
    }
    const int64_t q = config_int(config, "num_attention_heads") * config_int(config, "head_dim");
    const int64_t kv = config_int(config, "num_key_value_heads") * config_int(config, "head_dim");
    const bool is_bias = fused.shape.size() == 1;
    if ((is_bias ? fused.columns() : fused.rows()) != q + 2 * kv || fused.shape.size() > 2 ||
        (is_bias && info(fused.type).block != 1)) {
      throw UserError(
          "tensor {}: has shape {}, want {} rows for q, k and v",
          fused.name,
          shape_text(fused.shape),
          q + 2 * kv);
    }
    const auto name = [&](std::string_view part) {
      return fmt::format(
          "{}.{}.{}", fused.name.substr(0, at), part, fused.name.substr(at + kFused.size()));
    };
    parts.push_back(row_range(fused, 0, q, name("attn_q")));
    parts.push_back(row_range(fused, q, kv, name("attn_k")));
    parts.push_back(row_range(fused, q + kv, kv, name("attn_v")));
  }
  std::erase_if(
      tensors, [&](const TensorView& t) { return t.name.find(kFused) != std::string::npos; });
  std::move(parts.begin(), parts.end(), std::back_inserter(tensors));
}

}  // namespace

std::optional<std::string> hf_tensor_name(std::string_view architecture, std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view end = name.substr(dot);  // ".weight", ".bias"
  if (end != ".weight" && end != ".bias") {
    return std::nullopt;
  }
  const std::string_view stem = name.substr(0, dot);
  if (!stem.starts_with("blk.")) {
    const auto hf = look_up(kTopNames, stem);
    return hf ? std::optional(fmt::format("{}{}", *hf, end)) : std::nullopt;
  }
  const size_t second = stem.find('.', 4);
  if (second == std::string_view::npos) {
    return std::nullopt;
  }
  int block = -1;
  const auto [at, error] = std::from_chars(stem.data() + 4, stem.data() + second, block);
  if (error != std::errc() || at != stem.data() + second || block < 0) {
    return std::nullopt;
  }
  const std::string_view part = stem.substr(second + 1);
  auto hf = look_up(kBlockNames, part);
  if (part == "ffn_norm") {
    // The norm before the MLP; llama's name for it tells where it stands, gemma's what it precedes.
    hf = architecture == "gemma3" ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  } else if (part.starts_with("post_") && architecture != "gemma3") {
    hf = std::nullopt;
  }
  return hf ? std::optional(fmt::format("model.layers.{}.{}{}", block, *hf, end)) : std::nullopt;
}

std::vector<TensorView> gguf_hf_tensors(
    std::string_view architecture,
    const boost::json::object& config,
    std::vector<TensorView> tensors) {
  std::erase_if(tensors, [](const TensorView& t) {
    // Frequencies are in the config; old converters also left a copy in each block.
    return t.name == "rope_freqs.weight" || t.name.ends_with(".attn_rot_embd.weight") ||
           t.name.ends_with(".attn_rot_embd");
  });
  split_fused_qkv(tensors, config);
  for (TensorView& tensor : tensors) {
    const auto name = hf_tensor_name(architecture, tensor.name);
    if (!name) {
      continue;
    }
    tensor.name = *name;
    if (architecture == "llama" && name->find(".self_attn.q_proj.") != std::string::npos) {
      unpermute(tensor, config_int(config, "num_attention_heads"));
    } else if (architecture == "llama" && name->find(".self_attn.k_proj.") != std::string::npos) {
      unpermute(tensor, config_int(config, "num_key_value_heads"));
    } else if (architecture == "gemma3" && name->ends_with("norm.weight")) {
      tensor.add = -1.0f;  // stored as 1 + weight
    }
  }
  return tensors;
}

}  // namespace quince
