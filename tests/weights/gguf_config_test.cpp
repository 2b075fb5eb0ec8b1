#include "weights/gguf_config.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>

#include "weights/files.h"
#include "weights/model_files.h"

namespace quince {
namespace {

using test::GgufBytes;
using test::user_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The keys that every architecture has: 2 layers, 4 heads of 8, 2 key-value heads.
GgufBytes base(const std::string& arch) {
  GgufBytes file;
  file.key_string("general.architecture", arch)
      .key_u32(arch + ".block_count", 2)
      .key_u32(arch + ".context_length", 128)
      .key_u32(arch + ".embedding_length", 32)
      .key_u32(arch + ".feed_forward_length", 64)
      .key_u32(arch + ".attention.head_count", 4)
      .key_f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  return file;
}

GgufBytes with_kv(const std::string& arch) {
  return base(arch).key_u32(arch + ".attention.head_count_kv", 2);
}

boost::json::object config_of(const GgufBytes& file) {
  const std::string bytes = file.build();
  const GgufFile gguf = GgufFile::parse(std::as_bytes(std::span(bytes)), "x.gguf", nullptr);
  return gguf_hf_config(gguf, gguf.tensors());
}
std::string error_of(const GgufBytes& file) {
  return user_error([&] { config_of(file); });
}

TEST(GgufConfig, Llama) {
  auto file = with_kv("llama");
  file.key_f32("llama.rope.freq_base", 500000.0f)
      .key_u32("llama.rope.dimension_count", 8)
      .key_u32("tokenizer.ggml.bos_token_id", 1)
      .key_u32("tokenizer.ggml.eos_token_id", 2)
      .tensor_f32("token_embd.weight", {32, 100})
      .tensor_f32("output.weight", {32, 100});
  const auto config = config_of(file);
  EXPECT_EQ(config.at("model_type"), "llama");
  EXPECT_EQ(config.at("architectures"), (boost::json::array{"LlamaForCausalLM"}));
  EXPECT_EQ(config.at("hidden_size"), 32);
  EXPECT_EQ(config.at("num_hidden_layers"), 2);
  EXPECT_EQ(config.at("intermediate_size"), 64);
  EXPECT_EQ(config.at("num_attention_heads"), 4);
  EXPECT_EQ(config.at("num_key_value_heads"), 2);
  EXPECT_EQ(config.at("head_dim"), 8);
  EXPECT_EQ(config.at("vocab_size"), 100);
  EXPECT_EQ(config.at("max_position_embeddings"), 128);
  EXPECT_EQ(config.at("rms_norm_eps"), 1e-5);  // the decimal, not the nearest f32
  EXPECT_EQ(config.at("rope_theta"), 500000.0);
  EXPECT_EQ(config.at("rope_scaling"), nullptr);
  EXPECT_EQ(config.at("tie_word_embeddings"), false);
  EXPECT_EQ(config.at("attention_bias"), false);
  EXPECT_EQ(config.at("bos_token_id"), 1);
  EXPECT_EQ(config.at("eos_token_id"), 2);
  EXPECT_EQ(config.at("torch_dtype"), "float32");
}

TEST(GgufConfig, DefaultsAndBiases) {
  auto file = base("qwen2");
  file.tensor_f32("token_embd.weight", {32, 100})
      .tensor_f32("blk.0.attn_q.bias", {32})
      .tensor("blk.0.attn_q.weight", {32, 32}, 2, std::string(32 * 18, '\0'));
  const auto config = config_of(file);
  EXPECT_EQ(config.at("model_type"), "qwen2");
  EXPECT_EQ(config.at("num_key_value_heads"), 4);
  EXPECT_EQ(config.at("rope_theta"), 10000.0);
  EXPECT_EQ(config.at("tie_word_embeddings"), true);
  EXPECT_EQ(config.at("attention_bias"), true);
  EXPECT_EQ(config.at("torch_dtype"), "bfloat16");
}

TEST(GgufConfig, HeadDimensionOfItsOwn) {
  auto file = with_kv("qwen3");
  file.key_u32("qwen3.attention.key_length", 16).key_u32("qwen3.attention.value_length", 16);
  EXPECT_EQ(config_of(file.key_u32("qwen3.vocab_size", 7)).at("head_dim"), 16);
  EXPECT_THAT(
      error_of(with_kv("qwen3")
                   .key_u32("qwen3.attention.key_length", 16)
                   .key_u32("qwen3.attention.value_length", 8)),
      HasSubstr("16 key and 8 value"));
}

TEST(GgufConfig, KeyValueHeadsAsArray) {
  auto file = base("llama");
  file.key_array<int32_t>("llama.attention.head_count_kv", 5, {2, 2})
      .key_u32("llama.vocab_size", 7);
  EXPECT_EQ(config_of(file).at("num_key_value_heads"), 2);
  auto mixed = base("llama");
  mixed.key_array<int32_t>("llama.attention.head_count_kv", 5, {2, 1});
  EXPECT_THAT(error_of(mixed), HasSubstr("llama.attention.head_count_kv differs between layers"));
}

TEST(GgufConfig, Gemma3) {
  auto file = with_kv("gemma3");
  file.key_u32("gemma3.attention.key_length", 16)
      .key_u32("gemma3.attention.value_length", 16)
      .key_u32("gemma3.attention.sliding_window", 512)
      .key_f32("gemma3.rope.freq_base", 1e6f)
      .key_string("gemma3.rope.scaling.type", "linear")
      .key_f32("gemma3.rope.scaling.factor", 8.0f)
      .key_u32("gemma3.vocab_size", 7);
  const auto config = config_of(file);
  EXPECT_EQ(config.at("model_type"), "gemma3_text");
  EXPECT_EQ(config.at("query_pre_attn_scalar"), 16);
  EXPECT_EQ(config.at("sliding_window"), 512);
  EXPECT_EQ(config.at("sliding_window_pattern"), 6);
  EXPECT_EQ(
      config.at("layer_types"), (boost::json::array{"sliding_attention", "sliding_attention"}));
  EXPECT_EQ(config.at("rope_theta"), 1e6);
  EXPECT_EQ(config.at("rope_local_base_freq"), 1e4);
  EXPECT_EQ(
      config.at("rope_scaling"), (boost::json::object{{"rope_type", "linear"}, {"factor", 8.0}}));
  EXPECT_EQ(config.at("hidden_activation"), "gelu_pytorch_tanh");
  EXPECT_EQ(config.at("final_logit_softcapping"), nullptr);
}

TEST(GgufConfig, Gemma3WindowPatterns) {
  auto every_second = with_kv("gemma3");
  every_second.key_u32("gemma3.attention.sliding_window", 512)
      .key_u32("gemma3.attention.sliding_window_pattern", 2)
      .key_u32("gemma3.vocab_size", 7);
  EXPECT_EQ(
      config_of(every_second).at("layer_types"),
      (boost::json::array{"sliding_attention", "full_attention"}));
  auto listed = with_kv("gemma3");
  listed.key_u32("gemma3.attention.sliding_window", 512)
      .key_array<uint8_t>("gemma3.attention.sliding_window_pattern", 7, {0, 1})
      .key_u32("gemma3.vocab_size", 7);
  EXPECT_EQ(
      config_of(listed).at("layer_types"),
      (boost::json::array{"full_attention", "sliding_attention"}));
  auto few = with_kv("gemma3");
  few.key_u32("gemma3.attention.sliding_window", 512)
      .key_array<uint8_t>("gemma3.attention.sliding_window_pattern", 7, {0});
  EXPECT_THAT(error_of(few.key_u32("gemma3.vocab_size", 7)), HasSubstr("1 entries for 2 layers"));
  EXPECT_EQ(
      config_of(with_kv("gemma3").key_u32("gemma3.vocab_size", 7)).at("layer_types"),
      (boost::json::array{"full_attention", "full_attention"}));
}

// The 27B model (62 layers) scales attention by hidden_size / heads instead of head_dim.
TEST(GgufConfig, Gemma3AttentionScaleOfThe27B) {
  GgufBytes file;
  file.key_string("general.architecture", "gemma3")
      .key_u32("gemma3.block_count", 62)
      .key_u32("gemma3.context_length", 131072)
      .key_u32("gemma3.embedding_length", 5376)
      .key_u32("gemma3.feed_forward_length", 21504)
      .key_u32("gemma3.attention.head_count", 32)
      .key_u32("gemma3.attention.head_count_kv", 16)
      .key_u32("gemma3.attention.key_length", 128)
      .key_u32("gemma3.attention.value_length", 128)
      .key_u32("gemma3.vocab_size", 7);
  EXPECT_EQ(config_of(file).at("query_pre_attn_scalar"), 168);
}

TEST(GgufConfig, YarnAndOldLinearKeys) {
  auto yarn = with_kv("qwen3");
  yarn.key_string("qwen3.rope.scaling.type", "yarn")
      .key_f32("qwen3.rope.scaling.factor", 4.0f)
      .key_u32("qwen3.rope.scaling.original_context_length", 32768)
      .key_f32("qwen3.rope.scaling.yarn_beta_fast", 16.0f)
      .key_u32("qwen3.vocab_size", 7);
  EXPECT_EQ(
      config_of(yarn).at("rope_scaling"),
      (boost::json::object{
          {"rope_type", "yarn"},
          {"factor", 4.0},
          {"original_max_position_embeddings", 32768},
          {"beta_fast", 16.0}}));
  auto old = with_kv("llama");
  old.key_f32("llama.rope.scale_linear", 2.5f).key_u32("llama.vocab_size", 7);
  EXPECT_EQ(
      config_of(old).at("rope_scaling"),
      (boost::json::object{{"rope_type", "linear"}, {"factor", 2.5}}));
  auto none = with_kv("llama");
  none.key_string("llama.rope.scaling.type", "none")
      .key_f32("llama.rope.scaling.factor", 2.5f)
      .key_u32("llama.vocab_size", 7);
  EXPECT_EQ(config_of(none).at("rope_scaling"), nullptr);
  auto odd = with_kv("llama");
  odd.key_string("llama.rope.scaling.type", "banana")
      .key_f32("llama.rope.scaling.factor", 2.5f)
      .key_u32("llama.vocab_size", 7);
  EXPECT_THAT(error_of(odd), HasSubstr("banana"));
  auto incomplete = with_kv("qwen3");
  incomplete.key_string("qwen3.rope.scaling.type", "yarn")
      .key_f32("qwen3.rope.scaling.factor", 4.0f)
      .key_u32("qwen3.vocab_size", 7);
  EXPECT_THAT(error_of(incomplete), HasSubstr("original_context_length is missing"));
}

// Divisors as a Llama 3.1 file has them (head_dim 128, base 500000), in f32.
std::string llama3_divisors(double factor) {
  std::string bytes;
  for (int i = 0; i < 128; i += 2) {
    const double wavelength = 2 * std::numbers::pi * std::pow(500000.0, i / 128.0);
    double divisor = factor;
    if (wavelength < 8192.0 / 4) {
      divisor = 1;
    } else if (wavelength <= 8192.0) {
      const double smooth = (8192.0 / wavelength - 1) / 3;
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    bytes += test::raw(static_cast<float>(divisor));
  }
  return bytes;
}

GgufBytes llama3(const std::string& divisors) {
  GgufBytes file;
  file.key_string("general.architecture", "llama")
      .key_u32("llama.block_count", 2)
      .key_u32("llama.context_length", 131072)
      .key_u32("llama.embedding_length", 256)
      .key_u32("llama.feed_forward_length", 64)
      .key_u32("llama.attention.head_count", 2)
      .key_f32("llama.rope.freq_base", 500000.0f)
      .key_u32("llama.vocab_size", 7)
      .tensor("rope_freqs.weight", {divisors.size() / 4}, 0, divisors);
  return file;
}

TEST(GgufConfig, RopeFrequenciesOfLlama3AreRecognised) {
  for (const double factor : {8.0, 32.0}) {
    EXPECT_EQ(
        config_of(llama3(llama3_divisors(factor))).at("rope_scaling"),
        (boost::json::object{
            {"rope_type", "llama3"},
            {"factor", factor},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}}));
  }
}

TEST(GgufConfig, OtherRopeFrequenciesAreKeptAsTheyAre) {
  std::string divisors = llama3_divisors(8.0);
  divisors.replace(4, 4, test::raw(1.5f));
  const auto scaling = config_of(llama3(divisors)).at("rope_scaling").as_object();
  EXPECT_EQ(scaling.at("rope_type"), "rope_freqs");
  ASSERT_EQ(scaling.at("factors").as_array().size(), 64u);
  EXPECT_EQ(scaling.at("factors").as_array()[1], 1.5);

  std::string ones;
  for (int i = 0; i < 64; ++i) {
    ones += test::raw(1.0f);
  }
  EXPECT_EQ(config_of(llama3(ones)).at("rope_scaling"), nullptr);
  EXPECT_THAT(error_of(llama3(ones.substr(0, 128) + test::raw(2.0f))), HasSubstr("33 factors"));
  EXPECT_THAT(error_of(llama3(test::raw(0.0f) + ones.substr(4))), HasSubstr("factor 0"));
  EXPECT_THAT(
      error_of(llama3(test::raw(std::nanf("")) + ones.substr(4))),
      HasSubstr("want numbers over 0"));
}

TEST(GgufConfig, WhatIsRefused) {
  EXPECT_THAT(error_of(base("mamba")), HasSubstr("the architecture mamba is not supported"));
  EXPECT_THAT(error_of(base("mamba")), HasSubstr("gemma3, llama, qwen2, qwen3"));
  EXPECT_THAT(error_of(base("clip")), HasSubstr("mmproj"));
  EXPECT_THAT(error_of(GgufBytes()), HasSubstr("general.architecture is missing"));
  EXPECT_THAT(
      error_of(GgufBytes().key_string("general.architecture", "llama")),
      HasSubstr("llama.block_count is missing"));
  EXPECT_THAT(
      error_of(base("llama").key_u32("llama.expert_count", 8)), HasSubstr("mixture-of-experts"));
  EXPECT_THAT(
      error_of(base("llama").key_u32("llama.attention.head_count_kv", 3)),
      HasSubstr("do not go together"));
  EXPECT_THAT(
      error_of(base("llama").key_u32("llama.attention.head_count_kv", 0)),
      HasSubstr("makes no sense"));
  EXPECT_THAT(
      error_of(base("llama").key_u32("llama.rope.dimension_count", 4)),
      HasSubstr("rope.dimension_count is 4"));
  EXPECT_THAT(
      error_of(base("llama")
                   .key_f32("llama.rope.freq_base", std::nanf(""))
                   .key_u32("llama.vocab_size", 7)),
      HasSubstr("finite"));
  EXPECT_THAT(
      error_of(base("llama").key_f32("llama.rope.freq_base", -1).key_u32("llama.vocab_size", 7)),
      HasSubstr("rope.freq_base"));
}

TEST(GgufNames, EveryTensorOfTheArchitectures) {
  const auto name = [](std::string_view arch, std::string_view gguf) {
    return hf_tensor_name(arch, gguf).value_or("-");
  };
  EXPECT_EQ(name("llama", "token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(name("llama", "output_norm.weight"), "model.norm.weight");
  EXPECT_EQ(name("llama", "output.weight"), "lm_head.weight");
  EXPECT_EQ(name("llama", "blk.7.attn_norm.weight"), "model.layers.7.input_layernorm.weight");
  EXPECT_EQ(
      name("llama", "blk.7.ffn_norm.weight"), "model.layers.7.post_attention_layernorm.weight");
  EXPECT_EQ(name("qwen2", "blk.0.attn_q.bias"), "model.layers.0.self_attn.q_proj.bias");
  EXPECT_EQ(name("qwen3", "blk.0.attn_k_norm.weight"), "model.layers.0.self_attn.k_norm.weight");
  EXPECT_EQ(name("llama", "blk.12.attn_v.weight"), "model.layers.12.self_attn.v_proj.weight");
  EXPECT_EQ(name("llama", "blk.12.attn_output.weight"), "model.layers.12.self_attn.o_proj.weight");
  EXPECT_EQ(name("llama", "blk.0.ffn_gate.weight"), "model.layers.0.mlp.gate_proj.weight");
  EXPECT_EQ(name("llama", "blk.0.ffn_up.weight"), "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(name("llama", "blk.0.ffn_down.weight"), "model.layers.0.mlp.down_proj.weight");
  EXPECT_EQ(
      name("gemma3", "blk.0.ffn_norm.weight"), "model.layers.0.pre_feedforward_layernorm.weight");
  EXPECT_EQ(
      name("gemma3", "blk.0.post_attention_norm.weight"),
      "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(
      name("gemma3", "blk.0.post_ffw_norm.weight"),
      "model.layers.0.post_feedforward_layernorm.weight");
  for (const char* unknown :
       {"blk.0.ffn_gate_inp.weight",
        "blk.x.attn_q.weight",
        "blk.-1.attn_q.weight",
        "blk.0attn_q.weight",
        "blk..attn_q.weight",
        "blk.0",
        "blk.",
        "token_embd",
        "token_embd.scale",
        "blk.0.post_ffw_norm.weight",
        ""}) {
    EXPECT_EQ(name("llama", unknown), "-") << unknown;
  }
}

// The converter's permutation, as it does it: reshape(heads, 2, dim / 2).swapaxes(1, 2).
TEST(GgufTensors, LlamaRowsAreUnpermuted) {
  constexpr int kHeads = 4;
  constexpr int kKvHeads = 2;
  constexpr int kDim = 8;
  auto permuted = [](int heads) {
    std::string bytes;
    for (int head = 0; head < heads; ++head) {
      for (int i = 0; i < kDim / 2; ++i) {
        for (int half = 0; half < 2; ++half) {
          bytes += test::raw(static_cast<float>(head * kDim + half * kDim / 2 + i));
        }
      }
    }
    return bytes;
  };
  auto widened = [](const std::string& column) {  // two columns: value, 100 + value
    std::string bytes;
    for (size_t i = 0; i < column.size(); i += 4) {
      float value;
      std::memcpy(&value, column.data() + i, 4);
      bytes += test::raw(value) + test::raw(100 + value);
    }
    return bytes;
  };
  GgufBytes file;
  file.tensor("blk.0.attn_q.weight", {2, kHeads * kDim}, 0, widened(permuted(kHeads)))
      .tensor("blk.0.attn_k.weight", {2, kKvHeads * kDim}, 0, widened(permuted(kKvHeads)))
      .tensor("blk.0.attn_k.bias", {kKvHeads * kDim}, 0, permuted(kKvHeads))
      .tensor_f32("blk.0.attn_v.weight", {2, 16})
      .tensor_f32("rope_freqs.weight", {4})
      .tensor_f32("blk.0.strange.weight", {4});
  const std::string bytes = file.build();
  const boost::json::object config{
      {"num_attention_heads", kHeads}, {"num_key_value_heads", kKvHeads}};
  GgufFile gguf = GgufFile::parse(std::as_bytes(std::span(bytes)), "x.gguf", nullptr);
  const auto tensors = gguf_hf_tensors("llama", config, gguf.take_tensors());
  ASSERT_EQ(tensors.size(), 5u);
  for (int t : {0, 1}) {
    std::vector<float> values(static_cast<size_t>(tensors[t].size()));
    decode_rows(tensors[t], 0, tensors[t].rows(), values.data());
    for (size_t row = 0; row < values.size() / 2; ++row) {
      EXPECT_EQ(values[2 * row], static_cast<float>(row));
      EXPECT_EQ(values[2 * row + 1], 100.0f + static_cast<float>(row));
    }
  }
  std::vector<float> bias(16);
  decode_rows(tensors[2], 0, 1, bias.data());
  for (size_t i = 0; i < bias.size(); ++i) {
    EXPECT_EQ(bias[i], static_cast<float>(i));
  }
  EXPECT_TRUE(tensors[3].row_order.empty());
  EXPECT_EQ(tensors[4].name, "blk.0.strange.weight");

  GgufFile other = GgufFile::parse(std::as_bytes(std::span(bytes)), "x.gguf", nullptr);
  for (const auto& tensor : gguf_hf_tensors("qwen2", config, other.take_tensors())) {
    EXPECT_TRUE(tensor.row_order.empty());
  }
}

TEST(GgufTensors, FusedAttentionIsTakenApart) {
  // Heads of 2, q: 4 rows, k and v: 2 rows each; row r holds 10 r and 10 r + 1.
  std::string weight;
  std::string bias;
  for (int row = 0; row < 8; ++row) {
    weight +=
        test::raw(10.0f * static_cast<float>(row)) + test::raw(10.0f * static_cast<float>(row) + 1);
    bias += test::raw(static_cast<float>(row));
  }
  GgufBytes file;
  file.tensor("blk.0.attn_qkv.weight", {2, 8}, 0, weight)
      .tensor("blk.0.attn_qkv.bias", {8}, 0, bias);
  const std::string bytes = file.build();
  const boost::json::object config{
      {"num_attention_heads", 2}, {"num_key_value_heads", 1}, {"head_dim", 2}};
  GgufFile gguf = GgufFile::parse(std::as_bytes(std::span(bytes)), "x.gguf", nullptr);
  const auto tensors = gguf_hf_tensors("qwen2", config, gguf.take_tensors());
  ASSERT_EQ(tensors.size(), 6u);
  EXPECT_EQ(tensors[0].name, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_THAT(tensors[0].shape, ElementsAre(4, 2));
  EXPECT_EQ(tensors[2].name, "model.layers.0.self_attn.v_proj.weight");
  EXPECT_THAT(tensors[2].shape, ElementsAre(2, 2));
  float values[4];
  decode_rows(tensors[2], 0, 2, values);
  EXPECT_THAT(values, ElementsAre(60, 61, 70, 71));
  EXPECT_EQ(tensors[4].name, "model.layers.0.self_attn.k_proj.bias");
  EXPECT_THAT(tensors[4].shape, ElementsAre(2));
  decode_rows(tensors[4], 0, 1, values);
  EXPECT_EQ(values[0], 4);

  const boost::json::object other{
      {"num_attention_heads", 4}, {"num_key_value_heads", 1}, {"head_dim", 2}};
  GgufFile again = GgufFile::parse(std::as_bytes(std::span(bytes)), "x.gguf", nullptr);
  EXPECT_THAT(
      user_error([&] { gguf_hf_tensors("qwen2", other, again.take_tensors()); }),
      HasSubstr("want 12 rows"));
}

TEST(GgufTensors, RowsThatAreNoHeads) {
  GgufBytes file;
  file.tensor_f32("blk.0.attn_q.weight", {2, 6});
  const std::string bytes = file.build();
  GgufFile gguf = GgufFile::parse(std::as_bytes(std::span(bytes)), "x.gguf", nullptr);
  const boost::json::object config{{"num_attention_heads", 4}, {"num_key_value_heads", 2}};
  EXPECT_THAT(
      user_error([&] { gguf_hf_tensors("llama", config, gguf.take_tensors()); }),
      HasSubstr("6 rows cannot be 4 attention heads"));
}

TEST(GgufTensors, GemmaNormsLoseTheirOne) {
  GgufBytes file;
  file.tensor_f32("blk.0.attn_norm.weight", {4}, 1.25f)
      .tensor_f32("blk.0.attn_q_norm.weight", {4}, 1.25f)
      .tensor_f32("output_norm.weight", {4}, 1.25f)
      .tensor_f32("blk.0.attn_q.weight", {4, 4}, 1.25f);
  const std::string bytes = file.build();
  GgufFile gguf = GgufFile::parse(std::as_bytes(std::span(bytes)), "x.gguf", nullptr);
  const auto tensors = gguf_hf_tensors("gemma3", {}, gguf.take_tensors());
  for (int i = 0; i < 4; ++i) {
    float values[4];
    decode_rows(tensors[i], 0, 1, values);
    EXPECT_EQ(values[0], i < 3 ? 0.25f : 1.25f);
  }
}

}  // namespace
}  // namespace quince
