// Loading: names, ties, nested checkpoints, per-layer quantization, and what is refused.
#include <gmock/gmock-matchers.h>

#include "base/error.h"
#include "models/tiny_model.h"
#include "weights/model_files.h"

namespace quince::test {
namespace {

namespace json = boost::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr KernelSet kBoth[] = {KernelSet::mlx, KernelSet::native};

std::vector<float> logits_of(
    ModelFiles files, KernelSet kernels, const std::vector<int32_t>& tokens) {
  const auto model = load_model(std::move(files), load_options(kernels));
  CacheOptions options;
  options.keys = options.values = KvFormat::f32;
  const auto cache = model->make_cache(options);
  return append(*model, *cache, tokens);
}

std::string error_of(ModelFiles files, KernelSet kernels = KernelSet::mlx) {
  try {
    load_model(std::move(files), load_options(kernels));
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TensorView& tensor(ModelFiles& files, std::string_view name) {
  for (TensorView& t : files.tensors) {
    if (t.name == name) {
      return t;
    }
  }
  throw std::logic_error("no tensor " + std::string(name));
}

void erase(ModelFiles& files, std::string_view name) {
  std::erase_if(files.tensors, [&](const TensorView& t) { return t.name == name; });
}

// The golden would not notice a wrong rope, window or scale unless these mattered in it.
TEST(Load, WhatTheConfigSaysChangesTheLogits) {
  const auto differs = [](const char* name, const std::function<void(json::object&)>& change) {
    const Golden golden = load_golden(name);
    ModelFiles files = golden.files();
    change(files.config);
    EXPECT_GT(
        largest_difference(
            logits_of(std::move(files), KernelSet::mlx, golden.tokens), golden.logits),
        0.01f)
        << name;
  };
  for (const char* name : {"llama3", "llama_linear", "llama_dynamic", "llama_yarn"}) {
    differs(name, [](json::object& config) { config.erase("rope_scaling"); });
  }
  differs("llama_yarn_mscale", [](json::object& c) {
    c.at("rope_parameters").as_object()["mscale"] = 1.0;
  });
  differs("llama_yarn_mscale", [](json::object& c) {
    c.at("rope_parameters").as_object()["truncate"] = true;
  });
  differs("mistral", [](json::object& c) { c["sliding_window"] = 10; });
  differs("qwen2_window", [](json::object& c) { c["max_window_layers"] = 0; });
  differs("qwen2_window", [](json::object& c) { c["use_sliding_window"] = false; });
  differs("gemma3", [](json::object& c) { c["sliding_window"] = 9; });
  differs("gemma3", [](json::object& c) { c["sliding_window_pattern"] = 2; });
  differs("gemma3", [](json::object& c) { c["query_pre_attn_scalar"] = 16; });
  differs("gemma3", [](json::object& c) { c["rope_local_base_freq"] = 1000.0; });
  differs("gemma3", [](json::object& c) { c.erase("rope_scaling"); });
  differs("gemma3", [](json::object& c) { c["final_logit_softcapping"] = 5.0; });
}

TEST(Load, OldAndNewSpellingsOfTheRope) {
  for (const KernelSet kernels : kBoth) {
    const Golden llama3 = load_golden("llama3");
    ModelFiles files = llama3.files();
    json::object rope = files.config.at("rope_scaling").as_object();
    rope["rope_theta"] = files.config.at("rope_theta");
    files.config.erase("rope_theta");
    files.config.erase("rope_scaling");
    files.config["rope_parameters"] = rope;
    EXPECT_LT(
        largest_difference(logits_of(std::move(files), kernels, llama3.tokens), llama3.logits),
        1e-4f);

    const Golden gemma = load_golden("gemma3");
    files = gemma.files();
    for (const char* key :
         {"rope_theta", "rope_local_base_freq", "rope_scaling", "sliding_window_pattern"}) {
      files.config.erase(key);
    }
    files.config["rope_parameters"] = {
        {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
    files.config["layer_types"] = {
        "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"};
    EXPECT_LT(
        largest_difference(logits_of(std::move(files), kernels, gemma.tokens), gemma.logits),
        1e-4f);
  }
}

TEST(Load, RotaryBuffersAndSpareHeadsAreIgnored) {
  const Golden golden = load_golden("llama_bias");  // tied
  for (const KernelSet kernels : kBoth) {
    ModelFiles files = golden.files();
    files.tensors.push_back(
        f32_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", {3}, {1, 2, 3}));
    files.tensors.push_back(
        f32_tensor("lm_head.weight", {128, 32}, std::vector<float>(128 * 32, 7.0f)));
    EXPECT_LT(
        largest_difference(logits_of(std::move(files), kernels, golden.tokens), golden.logits),
        1e-4f);
  }
}

TEST(Load, UntiedWithoutAHeadIsRefused) {
  ModelFiles files = load_golden("llama").files();
  erase(files, "lm_head.weight");
  EXPECT_THAT(error_of(files), HasSubstr("lm_head.weight"));
  EXPECT_THAT(error_of(files, KernelSet::native), HasSubstr("lm_head.weight"));
  files.config.erase("tie_word_embeddings");  // says nothing: then the tensors tell
  EXPECT_EQ(error_of(files), "");
}

TEST(Load, LanguageModelInsideAMultimodalCheckpoint) {
  const Golden golden = load_golden("gemma3");
  for (const char* prefix : {"language_model.model.", "model.language_model."}) {
    for (const KernelSet kernels : kBoth) {
      ModelFiles files = golden.files();
      for (TensorView& t : files.tensors) {
        t.name = prefix + t.name.substr(std::strlen("model."));
      }
      files.tensors.push_back(f32_tensor("vision_tower.embeddings.weight", {2}, {1, 2}));
      files.tensors.push_back(f32_tensor("multi_modal_projector.weight", {2}, {1, 2}));
      files.config = {{"model_type", "gemma3"}, {"text_config", golden.config}};
      EXPECT_LT(
          largest_difference(logits_of(std::move(files), kernels, golden.tokens), golden.logits),
          1e-4f);
    }
  }
}

TEST(Load, MissingSurplusAndMisshapenTensorsAreNamed) {
  const Golden golden = load_golden("qwen2");
  for (const KernelSet kernels : kBoth) {
    ModelFiles files = golden.files();
    erase(files, "model.layers.1.mlp.up_proj.weight");
    EXPECT_THAT(
        error_of(files, kernels),
        AllOf(HasSubstr("model.layers.1.mlp.up_proj.weight"), HasSubstr("tiny/qwen2")));
    files = golden.files();
    files.tensors.push_back(
        f32_tensor("model.layers.2.self_attn.q_proj.weight", {32, 32}, std::vector<float>(1024)));
    EXPECT_THAT(error_of(files, kernels), HasSubstr("model.layers.2.self_attn.q_proj.weight"));
    files = golden.files();
    TensorView& t = tensor(files, "model.layers.0.self_attn.k_proj.weight");
    t = f32_tensor(t.name, {8, 64}, std::vector<float>(512));
    EXPECT_THAT(
        error_of(files, kernels),
        AllOf(HasSubstr(t.name), HasSubstr("[8, 64]"), HasSubstr("[16, 32]")));
    files = golden.files();
    TensorView& norm = tensor(files, "model.norm.weight");
    norm = f32_tensor(norm.name, {31}, std::vector<float>(31));
    EXPECT_THAT(
        error_of(files, kernels),
        AllOf(HasSubstr("model.norm.weight"), HasSubstr("[31]"), HasSubstr("[32]")));
  }
}

// check_model says what load_model says, of each tensor of each architecture, plain and packed.
TEST(Load, ACheckSaysWhatLoadingWouldSay) {
  const auto check_error = [](const ModelFiles& files) -> std::string {
    try {
      check_model(files);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  for (const char* name : {"llama", "llama_bias", "mistral", "qwen2", "qwen3", "gemma3"}) {
    const Golden golden = load_golden(name);
    for (const ModelFiles& whole : {golden.files(), quantized_files(golden, 4, 32)}) {
      EXPECT_EQ(check_error(whole), "") << name;
      EXPECT_EQ(check_model(whole).vocab_size, golden.vocab);
      for (const TensorView& one : whole.tensors) {
        ModelFiles files = whole;
        erase(files, one.name);
        const std::string missing = check_error(files);
        EXPECT_NE(missing, "") << one.name;
        EXPECT_EQ(missing, error_of(files, KernelSet::native));
        files.tensors.push_back(f32_tensor(one.name, {3, 5}, std::vector<float>(15)));
        const std::string misshapen = check_error(files);
        EXPECT_NE(misshapen, "") << one.name;
        EXPECT_EQ(misshapen, error_of(files, KernelSet::native));
      }
      ModelFiles more = whole;
      more.tensors.push_back(f32_tensor("model.extra.weight", {2}, {0, 0}));
      EXPECT_THAT(check_error(more), HasSubstr("model.extra.weight"));
      EXPECT_EQ(check_error(more), error_of(more, KernelSet::native));
    }
  }
}

TEST(Load, BadConfigValuesAreNamed) {
  const Golden golden = load_golden("llama");
  const std::tuple<const char*, json::value, const char*> bad[] = {
      {"model_type", "banana", "\"model_type\" is \"banana\""},
      {"model_type", nullptr, "\"model_type\""},
      {"hidden_size", 0, "\"hidden_size\" is 0"},
      {"hidden_size", -32, "\"hidden_size\" is -32"},
      {"hidden_size", "32", "\"hidden_size\" is \"32\""},
      {"hidden_size", 1.5, "\"hidden_size\" is 1.5"},
      {"hidden_size", int64_t{1} << 40, "\"hidden_size\""},
      {"num_hidden_layers", 1000000, "\"num_hidden_layers\""},
      {"num_attention_heads", nullptr, "\"num_attention_heads\""},
      {"num_key_value_heads", 3, "\"num_key_value_heads\" is 3"},
      {"head_dim", 7, "\"head_dim\""},
      {"rms_norm_eps", -1e-5, "\"rms_norm_eps\""},
      {"rope_theta", "x", "\"rope_theta\""},
      {"rope_scaling", "x", "\"rope_scaling\""},
      {"rope_scaling", json::object{{"rope_type", "banana"}}, "banana"},
      {"hidden_act", "relu", "\"hidden_act\" is \"relu\""},
      {"tie_word_embeddings", 1, "\"tie_word_embeddings\" is 1"},
      {"vocab_size", 129, "model.embed_tokens.weight"},
      {"layer_types", json::array{"full_attention"}, "\"layer_types\""},
      {"layer_types", json::array{"full_attention", "mamba"}, "\"layer_types\""},
      {"layer_types", json::array{"full_attention", "sliding_attention"}, "\"sliding_window\""},
      {"quantization_config", json::object{{"quant_method", "awq"}}, "awq"},
      {"partial_rotary_factor", 0.94, "\"partial_rotary_factor\""}};
  for (const auto& [key, value, want] : bad) {
    ModelFiles files = golden.files();
    files.config[key] = value;
    EXPECT_THAT(error_of(files), HasSubstr(want)) << key;
  }
  ModelFiles gemma = load_golden("gemma3").files();
  gemma.config["attn_logit_softcapping"] = 50.0;
  EXPECT_THAT(error_of(gemma), HasSubstr("attn_logit_softcapping"));
}

// Defaults of 4 bits, one layer with more, one left plain; then the file without the override.
ModelFiles mixed_files(const Golden& golden) {
  ModelFiles files = quantized_files(golden, 4, 32);
  const ModelFiles eight = quantized_files(golden, 8, 32);
  const ModelFiles plain = golden.files();
  const std::string q = "model.layers.0.self_attn.q_proj";
  const std::string down = "model.layers.1.mlp.down_proj";
  for (const TensorView& t : eight.tensors) {
    if (t.name.starts_with(q)) {
      tensor(files, t.name) = t;
    }
  }
  for (const TensorView& t : plain.tensors) {
    if (t.name.starts_with(down)) {
      tensor(files, t.name) = t;
    }
  }
  erase(files, down + ".scales");
  erase(files, down + ".biases");
  json::object& quantization = files.config["quantization"].as_object();
  quantization[q] = {{"group_size", 32}, {"bits", 8}};
  quantization[down] = false;
  return files;
}

// ST-07, with the next two.
TEST(Load, PerLayerQuantizationIsHonoured) {
  const Golden golden = load_golden("llama");
  ModelFiles files = mixed_files(golden);
  LoadOptions dense = load_options(KernelSet::mlx);
  dense.dequantize = true;
  const auto model = load_model(files, dense);
  const auto cache = model->make_cache({});
  const std::vector<float> want = append(*model, *cache, golden.tokens);
  EXPECT_LT(largest_difference(want, golden.logits), 1.5f);
  EXPECT_LT(largest_difference(logits_of(files, KernelSet::mlx, golden.tokens), want), 1e-4f);
  EXPECT_LT(largest_difference(logits_of(files, KernelSet::native, golden.tokens), want), 0.2f);
}

TEST(Load, OverridesUnderTheNamesOfANestedCheckpoint) {
  const Golden golden = load_golden("llama");
  ModelFiles files = mixed_files(golden);
  const std::vector<float> want = logits_of(files, KernelSet::mlx, golden.tokens);
  json::object& quantization = files.config["quantization"].as_object();
  for (const char* key : {"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"}) {
    quantization["language_model." + std::string(key)] = quantization.at(key);
    quantization.erase(key);
  }
  for (TensorView& t : files.tensors) {
    t.name = "language_model." + t.name;
  }
  EXPECT_EQ(logits_of(files, KernelSet::mlx, golden.tokens), want);
}

TEST(Load, PackedWidthsThatContradictTheConfigAreRefused) {
  const Golden golden = load_golden("llama");
  for (const KernelSet kernels : kBoth) {
    ModelFiles files = mixed_files(golden);
    files.config["quantization"].as_object().erase("model.layers.0.self_attn.q_proj");
    EXPECT_THAT(
        error_of(files, kernels),
        AllOf(
            HasSubstr("model.layers.0.self_attn.q_proj.weight"),
            HasSubstr("[64, 8]"),
            HasSubstr("[64, 4]")));
    files = mixed_files(golden);
    files.config["quantization"].as_object()["model.layers.1.self_attn.v_proj"] = false;
    EXPECT_THAT(error_of(files, kernels), HasSubstr("model.layers.1.self_attn.v_proj"));
    files = mixed_files(golden);
    erase(files, "model.layers.1.self_attn.v_proj.biases");
    EXPECT_THAT(error_of(files, kernels), HasSubstr("model.layers.1.self_attn.v_proj.biases"));
    files = mixed_files(golden);
    erase(files, "model.layers.1.self_attn.v_proj.scales");
    EXPECT_NE(error_of(files, kernels), "");
    files = mixed_files(golden);
    files.config.erase("quantization");
    EXPECT_THAT(error_of(files, kernels), HasSubstr("quantization"));
    for (const auto& [key, value] :
         {std::pair<const char*, json::value>{"bits", 7},
          {"group_size", 48},
          {"mode", "x"},
          {"bits", "4"}}) {
      files = mixed_files(golden);
      files.config["quantization"].as_object()[key] = value;
      EXPECT_THAT(error_of(files, kernels), HasSubstr(std::string("\"") + key + "\" is")) << key;
    }
  }
}

TEST(Load, ProgressReachesOne) {
  for (const KernelSet kernels : kBoth) {
    std::vector<double> shares;
    LoadOptions options = load_options(kernels);
    options.progress = [&](double share) { shares.push_back(share); };
    load_model(load_golden("llama").files(), options);
    ASSERT_FALSE(shares.empty());
    EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
    EXPECT_EQ(shares.back(), 1.0);
  }
}

}  // namespace
}  // namespace quince::test
