#include "cli/memory_plan.h"

#include <gtest/gtest.h>

namespace quince::cli {
namespace {

namespace json = boost::json;

DecoderSpec spec(int layers, int kv_heads, int head_dim) {
  DecoderSpec spec;
  spec.kv_heads = kv_heads;
  spec.head_dim = head_dim;
  spec.layers.resize(static_cast<size_t>(layers));
  return spec;
}

TEST(KvBytes, PlainDecoder) {
  // SmolLM2-135M: 30 layers, 3 heads of 64: 2 * 3 * 64 * 2 bytes * 30 = 23,040 a token.
  auto layers = kv_layers(spec(30, 3, 64));
  EXPECT_EQ(kv_bytes(layers, 1, KvFormat::f16), 23040u);
  EXPECT_EQ(kv_bytes(layers, 8192, KvFormat::f16), 23040u * 8192);
  EXPECT_EQ(kv_bytes(layers, 8192, KvFormat::f32), 2u * 23040 * 8192);
  EXPECT_EQ(kv_bytes(layers, 0, KvFormat::f16), 0u);
}

TEST(KvBytes, QuantizedTypesCountTheirScales) {
  auto layers = kv_layers(spec(1, 1, 64));
  // 128 elements: 8 bits each and two groups of 64 with a 16-bit scale and bias.
  EXPECT_EQ(kv_bytes(layers, 1, KvFormat::q8), 128u + 2 * 4);
  EXPECT_EQ(kv_bytes(layers, 1, KvFormat::q4), 64u + 2 * 4);
}

TEST(KvBytes, WindowLayersStopGrowing) {
  // Gemma-3-270M: 18 layers, every sixth sees everything, the others 512 tokens; one head of 256.
  DecoderSpec gemma = spec(18, 1, 256);
  for (size_t i = 0; i < gemma.layers.size(); i++) {
    gemma.layers[i].window = (i + 1) % 6 == 0 ? 0 : 512;
  }
  auto layers = kv_layers(gemma);
  const uint64_t token = 2 * 256 * 2;
  EXPECT_EQ(kv_bytes(layers, 100, KvFormat::f16), 18 * 100 * token);
  EXPECT_EQ(kv_bytes(layers, 32768, KvFormat::f16), (3 * 32768 + 15 * 512) * token);
}

TEST(KvBytes, LargeContextsDoNotOverflow) {
  auto layers = kv_layers(spec(120, 8, 128));
  EXPECT_EQ(kv_bytes(layers, 1 << 30, KvFormat::f16), 120ull * 2 * 8 * 128 * 2 * (1ull << 30));
}

TEST(KvLayers, FromConfigs) {
  auto layers = kv_layers(json::parse(R"({"num_hidden_layers":2,"num_attention_heads":8,
      "num_key_value_heads":2,"hidden_size":512})")
                              .as_object());
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].elements, 2 * 2 * 64);

  auto typed = kv_layers(json::parse(R"({"num_hidden_layers":3,"num_attention_heads":8,
      "head_dim":32,"sliding_window":100,
      "layer_types":["sliding_attention","full_attention","linear_attention"]})")
                             .as_object());
  ASSERT_EQ(typed.size(), 3u);
  EXPECT_EQ(typed[0].window, 100);
  EXPECT_EQ(typed[1].window, 0);
  EXPECT_EQ(typed[2].elements, 0);

  auto latent = kv_layers(json::parse(R"({"text_config":{"num_hidden_layers":1,
      "num_attention_heads":128,"hidden_size":7168,"kv_lora_rank":512,"qk_rope_head_dim":64}})")
                              .as_object());
  ASSERT_EQ(latent.size(), 1u);
  EXPECT_EQ(latent[0].elements, 576);
}

TEST(KvLayers, SenselessConfigsGiveNothing) {
  for (const char* text :
       {"{}",
        R"({"num_hidden_layers":-1,"num_attention_heads":8,"head_dim":8})",
        R"({"num_hidden_layers":"x"})",
        R"({"num_hidden_layers":9000000000})",
        R"({"num_hidden_layers":4,"num_attention_heads":0,"hidden_size":8})"}) {
    EXPECT_TRUE(kv_layers(json::parse(text).as_object()).empty()) << text;
  }
}

TEST(KvFormat, Names) {
  EXPECT_EQ(parse_kv_format("q4_0"), KvFormat::q4);
  EXPECT_EQ(parse_kv_format("q8_0"), KvFormat::q8);
  EXPECT_FALSE(parse_kv_format("q5"));
  for (KvFormat type : {KvFormat::f32, KvFormat::f16, KvFormat::bf16, KvFormat::q8, KvFormat::q4}) {
    EXPECT_EQ(parse_kv_format(name(type)), type);
  }
}

TEST(HeldBytes, KeptFormatsCostWhatTheFileCosts) {
  for (TensorType type : {TensorType::q4_1, TensorType::q8_0, TensorType::q4_k, TensorType::q6_k}) {
    std::vector<std::byte> bytes(
        static_cast<size_t>(info(type).bytes) * 512 / info(type).block * 16);
    TensorView tensor = make_tensor("a.weight", type, {16, 512}, bytes);
    EXPECT_NEAR(
        static_cast<double>(held_bytes(tensor)),
        static_cast<double>(bytes.size()),
        0.021 * static_cast<double>(bytes.size()))
        << info(type).name;
  }
  TensorView norm = make_tensor("n", TensorType::bf16, {64}, std::vector<std::byte>(128));
  EXPECT_EQ(held_bytes(norm), 256u);
}

}  // namespace
}  // namespace quince::cli
