#include "convert/convert.h"

#include <cmath>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include "convert/plan.h"
#include "models/tiny_model.h"
#include "weights/files.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
namespace mx = mlx::core;
using test::load_golden;
using test::TempFolder;
using test::user_error;
using testing::HasSubstr;

ConvertOptions options_for(const fs::path& out) {
  ConvertOptions options;
  options.out = out;
  options.pool = std::make_shared<ThreadPool>(2);
  return options;
}

const TensorView& find(const ModelFiles& files, std::string_view name) {
  for (const TensorView& tensor : files.tensors) {
    if (tensor.name == name) {
      return tensor;
    }
  }
  throw std::runtime_error("no tensor " + std::string(name));
}

bool has(const ModelFiles& files, std::string_view name) {
  return std::any_of(files.tensors.begin(), files.tensors.end(), [&](const TensorView& tensor) {
    return tensor.name == name;
  });
}

std::vector<float> values(const TensorView& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.size()));
  decode_rows(tensor, 0, tensor.rows(), out.data());
  return out;
}

std::vector<float> logits_of(ModelFiles files, const std::vector<int32_t>& tokens) {
  LoadOptions options = test::load_options(KernelSet::mlx);
  options.dtype = mx::float32;
  auto model = load_model(std::move(files), options);
  auto cache = model->make_cache({});
  return test::append(*model, *cache, tokens);
}

// ---- plain models of every architecture come back the same ----

class RoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(RoundTrip, PlainF32IsExact) {
  TempFolder folder;
  test::Golden golden = load_golden(GetParam());
  ConvertOptions options = options_for(folder / "out");
  options.dtype = TensorType::f32;
  convert(golden.files(), options);
  ModelFiles converted = open_model(folder / "out");
  EXPECT_EQ(converted.tensors.size(), golden.files().tensors.size());
  EXPECT_LT(test::largest_difference(logits_of(converted, golden.tokens), golden.logits), 1e-4f);
}

TEST_P(RoundTrip, QuantizedEqualsQuantizedInMemory) {
  TempFolder folder;
  test::Golden golden = load_golden(GetParam());
  ConvertOptions options = options_for(folder / "out");
  options.dtype = TensorType::f32;
  options.policy = uniform_policy({4, 32, "affine"});
  convert(golden.files(), options);
  std::vector<float> converted = logits_of(open_model(folder / "out"), golden.tokens);
  std::vector<float> memory = logits_of(test::quantized_files(golden, 4, 32), golden.tokens);
  EXPECT_EQ(test::largest_difference(converted, memory), 0.0f);
}

INSTANTIATE_TEST_SUITE_P(
    Architectures, RoundTrip, testing::Values("llama", "qwen2", "qwen3", "gemma3", "mistral"));

// ---- forms ----

ModelFiles one_matrix(TensorView matrix) {
  ModelFiles files;
  files.path = "one";
  files.container = "safetensors";
  files.config = {{"model_type", "llama"}, {"torch_dtype", "float32"}};
  files.tensors.push_back(std::move(matrix));
  return files;
}

std::vector<float> noise(size_t count, uint64_t seed) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; i++) {
    out[i] = test::uniform(seed, i);
  }
  return out;
}

TEST(Convert, NumbersThatTheOutputCannotHold) {
  for (float number : {1e5f, INFINITY, -INFINITY, NAN}) {
    std::vector<float> numbers = noise(64 * 64, 1);
    numbers[77] = number;
    std::vector<std::byte> bytes(numbers.size() * sizeof(float));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    ModelFiles files =
        one_matrix(make_tensor("model.x.weight", TensorType::f32, {64, 64}, std::move(bytes)));
    for (bool quantized : {false, true}) {
      for (TensorType type : {TensorType::f16, TensorType::bf16}) {
        TempFolder folder;
        ConvertOptions options = options_for(folder / "out");
        options.dtype = type;
        options.policy = quantized ? uniform_policy({4, 32, "affine"}) : options.policy;
        if (quantized && !std::isfinite(number)) {
          EXPECT_THAT(
              user_error([&] { convert(files, options); }),
              HasSubstr("model.x.weight: holds NaN or infinity and cannot be quantized"));
        } else if (type == TensorType::f16 && std::isfinite(number)) {
          EXPECT_THAT(
              user_error([&] { convert(files, options); }),
              HasSubstr("model.x.weight: holds 100000, which is too large for f16"));
        } else {
          convert(files, options);
          continue;
        }
        EXPECT_TRUE(fs::is_empty(folder.path()));
      }
    }
  }
}

// Blocks of Q4_1 and Q8_0 with sensible scales.
TensorView block_matrix(TensorType type, int64_t rows, int64_t columns) {
  std::vector<std::byte> bytes;
  uint64_t seed = 7;
  for (int64_t block = 0; block < rows * columns / 32; block++) {
    auto half = [&](float value) {
      mx::float16_t number(value);
      uint16_t bits = 0;
      std::memcpy(&bits, &number, 2);
      bytes.push_back(static_cast<std::byte>(bits & 0xff));
      bytes.push_back(static_cast<std::byte>(bits >> 8));
    };
    half(0.01f + 0.001f * static_cast<float>(block % 13));
    if (type == TensorType::q4_1) {
      half(-0.1f - 0.003f * static_cast<float>(block % 7));
    }
    int codes = info(type).bytes - static_cast<int>(type == TensorType::q4_1 ? 4 : 2);
    for (int i = 0; i < codes; i++) {
      bytes.push_back(static_cast<std::byte>(test::mix(seed++) & 0xff));
    }
  }
  return make_tensor("model.x.weight", type, {rows, columns}, std::move(bytes));
}

// What MLX makes of the converted triple, in f32.
std::vector<float> dequantized(const ModelFiles& files, int bits, int group) {
  auto array_of = [&](const char* name, mx::Dtype dtype) {
    const TensorView& tensor = find(files, name);
    mx::Shape shape{static_cast<int>(tensor.rows()), static_cast<int>(tensor.columns())};
    if (dtype == mx::uint32) {
      return mx::array(reinterpret_cast<const uint32_t*>(tensor.bytes.data()), shape, dtype);
    }
    std::vector<float> numbers = values(tensor);
    return mx::array(numbers.data(), shape, mx::float32);
  };
  mx::array dense = mx::dequantize(
      array_of("model.x.weight", mx::uint32),
      array_of("model.x.scales", mx::float32),
      array_of("model.x.biases", mx::float32),
      group,
      bits);
  mx::eval(dense);
  return {dense.data<float>(), dense.data<float>() + dense.size()};
}

TEST(Convert, BlockFormatsKeepTheirCodes) {
  for (auto [type, bits] : {std::pair(TensorType::q4_1, 4), std::pair(TensorType::q8_0, 8)}) {
    TempFolder folder;
    TensorView matrix = block_matrix(type, 70, 64);
    ConvertOptions options = options_for(folder / "out");
    ConvertResult result = convert(one_matrix(matrix), options);
    EXPECT_THAT(result.lines.at(0), HasSubstr("kept exactly"));
    ModelFiles converted = open_model(folder / "out");
    EXPECT_EQ(converted.config.at("quantization").at("bits"), bits);
    EXPECT_EQ(converted.config.at("quantization").at("group_size"), 32);
    EXPECT_EQ(converted.config.at("quantization_config"), converted.config.at("quantization"));
    // w = scale * code + bias in f32: one rounding more than the block's own formula at most.
    EXPECT_LT(test::largest_difference(dequantized(converted, bits, 32), values(matrix)), 1e-6f);
  }
}

TEST(Convert, AskedForWhatIsThereKeepsTheCodes) {
  TempFolder folder;
  TensorView matrix = block_matrix(TensorType::q4_1, 8, 64);
  ConvertOptions options = options_for(folder / "out");
  options.policy = uniform_policy({4, 32, "affine"});
  ConvertResult result = convert(one_matrix(matrix), options);
  EXPECT_THAT(result.lines.at(0), HasSubstr("kept exactly as 4-bit g32"));
  EXPECT_LT(
      test::largest_difference(dequantized(open_model(folder / "out"), 4, 32), values(matrix)),
      1e-6f);
}

TEST(Convert, GroupsOfSixteenBecomeEightBits) {
  TempFolder folder;
  std::vector<std::byte> bytes(static_cast<size_t>(info(TensorType::q6_k).bytes) * 2 * 4);
  for (size_t i = 0; i < bytes.size(); i++) {
    bytes[i] = static_cast<std::byte>(test::mix(i) & 0x3f);  // small scales, no NaN
  }
  TensorView matrix = make_tensor("model.x.weight", TensorType::q6_k, {4, 512}, bytes);
  ConvertResult result = convert(one_matrix(matrix), options_for(folder / "out"));
  EXPECT_THAT(result.lines.at(0), HasSubstr("quantized to 8-bit g32"));
  std::vector<float> before = values(matrix);
  std::vector<float> after = dequantized(open_model(folder / "out"), 8, 32);
  for (size_t group = 0; group < before.size(); group += 32) {
    auto [low, high] = std::minmax_element(before.begin() + group, before.begin() + group + 32);
    for (size_t i = group; i < group + 32; i++) {
      EXPECT_NEAR(after[i], before[i], (*high - *low) / 255 + 1e-6f);
    }
  }
}

TEST(Convert, RowOrderAndOffsetAreApplied) {
  TempFolder folder;
  TensorView matrix = block_matrix(TensorType::q8_0, 4, 64);
  matrix.row_order = {2, 0, 3, 1};
  TensorView norm = test::f32_tensor("model.norm.weight", {4}, {1, 2, 3, 4});
  norm.add = -1.0f;
  ModelFiles files = one_matrix(matrix);
  files.tensors.push_back(norm);
  convert(files, options_for(folder / "out"));
  ModelFiles converted = open_model(folder / "out");
  EXPECT_LT(test::largest_difference(dequantized(converted, 8, 32), values(matrix)), 1e-6f);
  EXPECT_EQ(values(find(converted, "model.norm.weight")), (std::vector<float>{0, 1, 2, 3}));
}

TEST(Convert, DequantizeAndDtype) {
  for (TensorType type : {TensorType::f32, TensorType::f16, TensorType::bf16}) {
    TempFolder folder;
    TensorView matrix = block_matrix(TensorType::q4_1, 3, 64);
    ConvertOptions options = options_for(folder / "out");
    options.policy = dequantize_policy();
    options.dtype = type;
    convert(one_matrix(matrix), options);
    ModelFiles converted = open_model(folder / "out");
    const TensorView& out = find(converted, "model.x.weight");
    EXPECT_EQ(out.type, type);
    float tolerance = type == TensorType::f32 ? 0.0f : type == TensorType::f16 ? 1e-3f : 5e-3f;
    EXPECT_LE(test::largest_difference(values(out), values(matrix)), tolerance);
    EXPECT_FALSE(converted.config.contains("quantization"));
    const char* name = type == TensorType::f32   ? "float32"
                       : type == TensorType::f16 ? "float16"
                                                 : "bfloat16";
    EXPECT_EQ(converted.config.at("torch_dtype"), name);
  }
}

TEST(Convert, QuantizesAsMlxDoes) {
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (int group : {32, 64, 128}) {
      TempFolder folder;
      std::vector<float> numbers = noise(40 * 256, 3);
      ConvertOptions options = options_for(folder / "out");
      options.policy = uniform_policy({bits, group, "affine"});
      convert(one_matrix(test::f32_tensor("model.x.weight", {40, 256}, numbers)), options);
      ModelFiles converted = open_model(folder / "out");
      auto parts = mx::quantize(mx::array(numbers.data(), {40, 256}, mx::float32), group, bits);
      mx::eval(parts);
      const TensorView& codes = find(converted, "model.x.weight");
      ASSERT_EQ(codes.bytes.size(), parts[0].nbytes());
      EXPECT_EQ(std::memcmp(codes.bytes.data(), parts[0].data<uint32_t>(), parts[0].nbytes()), 0);
      std::vector<float> scales(parts[1].data<float>(), parts[1].data<float>() + parts[1].size());
      EXPECT_EQ(values(find(converted, "model.x.scales")), scales);
    }
  }
}

TEST(Convert, SlicesGiveTheSameAsTheWhole) {
  // More rows than one slice holds.
  TempFolder folder;
  std::vector<float> numbers = noise(size_t{3000} * 1024, 5);
  ConvertOptions options = options_for(folder / "out");
  options.policy = uniform_policy({4, 64, "affine"});
  convert(one_matrix(test::f32_tensor("model.x.weight", {3000, 1024}, numbers)), options);
  ModelFiles converted = open_model(folder / "out");
  auto parts = mx::quantize(mx::array(numbers.data(), {3000, 1024}, mx::float32), 64, 4);
  mx::eval(parts);
  const TensorView& codes = find(converted, "model.x.weight");
  EXPECT_EQ(std::memcmp(codes.bytes.data(), parts[0].data<uint32_t>(), parts[0].nbytes()), 0);
}

TEST(Convert, MlxTriplesAreKeptAndRequantized) {
  test::Golden golden = load_golden("llama");
  ModelFiles source = test::quantized_files(golden, 8, 32);
  TempFolder folder;
  ConvertOptions options = options_for(folder / "kept");
  options.dtype = TensorType::f32;
  convert(source, options);
  EXPECT_EQ(
      test::largest_difference(
          logits_of(open_model(folder / "kept"), golden.tokens), logits_of(source, golden.tokens)),
      0.0f);

  ConvertOptions plain = options_for(folder / "plain");
  plain.dtype = TensorType::f32;
  plain.policy = dequantize_policy();
  convert(source, plain);
  ModelFiles dense = open_model(folder / "plain");
  EXPECT_FALSE(has(dense, "model.layers.0.self_attn.q_proj.scales"));
  EXPECT_LT(
      test::largest_difference(logits_of(dense, golden.tokens), logits_of(source, golden.tokens)),
      1e-3f);
}

// ---- odd widths ----

TEST(Convert, OddWidthsAreExceptions) {
  TempFolder folder;
  ModelFiles files;
  files.path = "odd";
  files.container = "safetensors";
  files.config = {{"model_type", "llama"}, {"torch_dtype", "float32"}};
  for (auto [name, columns] :
       {std::pair("model.a", 128), std::pair("model.b", 96), std::pair("model.c", 4304)}) {
    files.tensors.push_back(test::f32_tensor(
        std::string(name) + ".weight", {4, columns}, noise(4 * static_cast<size_t>(columns), 1)));
  }
  ConvertOptions options = options_for(folder / "out");
  options.policy = uniform_policy({4, 64, "affine"});
  ConvertResult result = convert(files, options);
  ASSERT_EQ(result.exceptions.size(), 2u);
  EXPECT_THAT(result.exceptions[0], HasSubstr("model.b: 96 columns"));
  EXPECT_THAT(result.exceptions[0], HasSubstr("groups of 32"));
  EXPECT_THAT(result.exceptions[1], HasSubstr("model.c: 4304 columns"));
  EXPECT_THAT(result.exceptions[1], HasSubstr("left plain"));
  json::object quantization = open_model(folder / "out").config.at("quantization").as_object();
  EXPECT_EQ(quantization.at("group_size"), 64);
  EXPECT_EQ(quantization.at("model.b").at("group_size"), 32);
  EXPECT_EQ(quantization.at("model.c"), false);
  EXPECT_FALSE(quantization.contains("model.a"));
}

// ---- what does not belong ----

TEST(Convert, SpareTensorsAreLeftOut) {
  TempFolder folder;
  ModelFiles files = one_matrix(test::f32_tensor("model.x.weight", {2, 32}, noise(64, 1)));
  files.config["tie_word_embeddings"] = true;
  files.tensors.push_back(test::f32_tensor("lm_head.weight", {2, 32}, noise(64, 2)));
  files.tensors.push_back(
      test::f32_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", {4}, noise(4, 2)));
  convert(files, options_for(folder / "out"));
  ModelFiles converted = open_model(folder / "out");
  EXPECT_EQ(converted.tensors.size(), 1u);
}

TEST(Convert, RotaryFactorsWithoutFormulaAreRefused) {
  TempFolder folder;
  ModelFiles files = one_matrix(test::f32_tensor("model.x.weight", {2, 32}, noise(64, 1)));
  files.config["rope_scaling"] = {{"rope_type", "rope_freqs"}, {"factors", json::array{1.0, 2.0}}};
  EXPECT_THAT(
      user_error([&] { convert(files, options_for(folder / "out")); }), HasSubstr("rope_freqs"));
  EXPECT_FALSE(fs::exists(folder / "out"));
}

// ---- complete or not at all ----

size_t entries(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(Convert, AStopLeavesNothing) {
  TempFolder folder;
  ConvertHooks hooks;
  int calls = 0;
  hooks.check = [&] {
    if (++calls == 10) {
      throw std::runtime_error("stopped");
    }
  };
  EXPECT_THROW(
      convert(load_golden("llama").files(), options_for(folder / "out"), hooks),
      std::runtime_error);
  EXPECT_EQ(entries(folder.path()), 0u);
}

TEST(Convert, ExistingFoldersAreSafe) {
  TempFolder folder;
  ModelFiles files = load_golden("llama").files();
  folder.write("other/thesis.txt", "mine");
  EXPECT_THAT(
      user_error([&] { convert(files, options_for(folder / "other")); }), HasSubstr("--force"));
  ConvertOptions forced = options_for(folder / "other");
  forced.force = true;
  EXPECT_THAT(user_error([&] { convert(files, forced); }), HasSubstr("config.json"));
  EXPECT_EQ(test::read_file(folder / "other/thesis.txt"), "mine");
  folder.write("file", "x");
  EXPECT_THAT(
      user_error([&] { convert(files, options_for(folder / "file")); }), HasSubstr("exists"));
}

TEST(Convert, ForceReplacesAModelAtTheEnd) {
  TempFolder folder;
  ModelFiles files = load_golden("llama").files();
  convert(files, options_for(folder / "out"));
  folder.write("out/old.txt", "old");
  ConvertOptions forced = options_for(folder / "out");
  forced.force = true;
  ConvertHooks failing;
  failing.check = [] { throw std::runtime_error("stopped"); };
  EXPECT_THROW(convert(files, forced, failing), std::runtime_error);
  EXPECT_TRUE(fs::exists(folder / "out/old.txt")) << "a failure leaves the old model alone";
  convert(files, forced);
  EXPECT_FALSE(fs::exists(folder / "out/old.txt"));
  EXPECT_TRUE(fs::exists(folder / "out/config.json"));
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(Convert, OverItselfIsRefused) {
  TempFolder folder;
  convert(load_golden("llama").files(), options_for(folder / "out"));
  ConvertOptions forced = options_for(folder / "out");
  forced.force = true;
  EXPECT_THAT(
      user_error([&] { convert(open_model(folder / "out"), forced); }), HasSubstr("being read"));
}

// --force would remove it together with the old folder.
TEST(Convert, OverAFolderThatHoldsTheModelIsRefused) {
  TempFolder folder;
  convert(load_golden("llama").files(), options_for(folder / "out"));
  convert(load_golden("llama").files(), options_for(folder / "out/inner"));
  fs::create_directory_symlink(folder / "out/inner", folder / "link");
  ConvertOptions forced = options_for(folder / "out");
  forced.force = true;
  for (const fs::path& model : {folder / "out/inner", folder / "link", folder / "out/inner/"}) {
    EXPECT_THAT(user_error([&] { convert(open_model(model), forced); }), HasSubstr("being read"));
  }
  EXPECT_TRUE(fs::exists(folder / "out/inner/model.safetensors"));
}

TEST(Convert, ShardsAreCutAndFound) {
  TempFolder folder;
  ConvertOptions options = options_for(folder / "out");
  options.dtype = TensorType::f32;
  options.shard_bytes = 20000;
  test::Golden golden = load_golden("llama");
  ConvertResult result = convert(golden.files(), options);
  EXPECT_GT(result.shards, 2);
  ModelFiles converted = open_model(folder / "out");
  EXPECT_EQ(converted.tensors.size(), golden.shapes.size());
  EXPECT_LT(test::largest_difference(logits_of(converted, golden.tokens), golden.logits), 1e-4f);
}

// ---- side files ----

TEST(Convert, TokenizerAndTemplateComeAlong) {
  TempFolder folder;
  ModelFiles files = load_golden("llama").files();
  files.tokenizer.tokenizer_json = "{\"model\":{}}";
  files.tokenizer.tokenizer_config = {{"bos_token", "<s>"}};
  files.tokenizer.eos_token_ids = {2, 5};
  files.chat_templates = {{"default", "{{ messages }}"}};
  files.generation_config = {{"temperature", 0.6}};
  convert(files, options_for(folder / "out"));
  EXPECT_EQ(test::read_file(folder / "out/tokenizer.json"), "{\"model\":{}}");
  EXPECT_EQ(test::read_file(folder / "out/chat_template.jinja"), "{{ messages }}");
  json::object tokenizer =
      json::parse(test::read_file(folder / "out/tokenizer_config.json")).as_object();
  EXPECT_EQ(tokenizer.at("chat_template"), "{{ messages }}");
  EXPECT_EQ(tokenizer.at("bos_token"), "<s>");
  EXPECT_EQ(tokenizer.at("tokenizer_class"), "PreTrainedTokenizerFast");
  json::object generation =
      json::parse(test::read_file(folder / "out/generation_config.json")).as_object();
  EXPECT_EQ(generation.at("temperature"), 0.6);
  EXPECT_EQ(generation.at("eos_token_id"), (json::array{2, 5}));
  json::object config = json::parse(test::read_file(folder / "out/config.json")).as_object();
  EXPECT_EQ(config.at("eos_token_id"), (json::array{2, 5}));
}

TEST(Convert, SeveralTemplatesStayAList) {
  TempFolder folder;
  ModelFiles files = load_golden("llama").files();
  files.tokenizer.tokenizer_json = "{}";
  files.chat_templates = {{"default", "a"}, {"tool_use", "b"}};
  convert(files, options_for(folder / "out"));
  json::object tokenizer =
      json::parse(test::read_file(folder / "out/tokenizer_config.json")).as_object();
  EXPECT_EQ(tokenizer.at("chat_template").as_array().size(), 2u);
  EXPECT_FALSE(fs::exists(folder / "out/chat_template.jinja"));
}

}  // namespace
}  // namespace quince
