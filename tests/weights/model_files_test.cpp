#include "weights/model_files.h"

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "weights/files.h"
#include "weights/tokenizer_files.h"
#include "weights/weights.h"

namespace quince {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using test::user_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kTokenizer = R"({
  "added_tokens": [
    {"id": 1, "content": "<s>", "special": true},
    {"id": 2, "content": "</s>", "special": true}],
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
    "pair": [{"SpecialToken": {"id": "<other>", "type_id": 0}}]},
  "model": {"type": "BPE", "vocab": {"<unk>": 0, "fox": 263, "<end>": 264}, "merges": []}
})";

// A directory with one small tensor a name.
class ModelDirectory : public ::testing::Test {
 protected:
  ModelDirectory() {
    config(R"({"model_type":"llama","eos_token_id":2,"bos_token_id":1})");
    tensors({"model.norm.weight", "lm_head.weight"});
    folder_.write("tokenizer.json", kTokenizer);
    folder_.write(
        "tokenizer_config.json",
        R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"add_bos_token":true})");
  }
  void config(const std::string& text) {
    folder_.write("config.json", text);
  }
  void tensors(const std::vector<std::string>& names) {
    json::object header;
    for (size_t i = 0; i < names.size(); ++i) {
      header[names[i]] = json::object{
          {"dtype", "U8"}, {"shape", json::array{1}}, {"data_offsets", json::array{i, i + 1}}};
    }
    folder_.write(
        "model.safetensors",
        test::safetensors_bytes(json::serialize(header), std::string(names.size(), 'x')));
  }
  ModelFiles open() {
    return open_model(folder_.path().string());
  }
  std::string error() {
    return user_error([&] { open(); });
  }
  test::TempFolder folder_;
};

TEST_F(ModelDirectory, Plain) {
  folder_.write("chat_template.jinja", "the template");
  const ModelFiles files = open();
  EXPECT_EQ(files.container, "safetensors");
  EXPECT_EQ(files.config.at("model_type"), "llama");
  EXPECT_EQ(files.tensors.size(), 2u);
  EXPECT_EQ(files.tokenizer.tokenizer_json, kTokenizer);
  EXPECT_EQ(files.tokenizer.bos_token_id, 1);
  EXPECT_THAT(files.tokenizer.eos_token_ids, ElementsAre(2));
  EXPECT_TRUE(files.tokenizer.add_bos);
  ASSERT_EQ(files.chat_templates.size(), 1u);
  EXPECT_EQ(files.chat_templates[0].name, "default");
  EXPECT_EQ(files.chat_templates[0].text, "the template");
  EXPECT_THAT(files.notes, IsEmpty());
}

// What happens to the files afterwards is not seen.
TEST_F(ModelDirectory, TensorsCanBeReadIntoMemory) {
  const ModelFiles mapped = open();
  std::vector<std::string> before;
  for (const TensorView& tensor : mapped.tensors) {
    before.emplace_back(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  ModelFiles files = open();
  read_tensors(files);
  const std::filesystem::path path = files.tensors.front().file->path();
  const std::string bytes = test::read_file(path);
  std::string zeros(bytes.size(), '\0');
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
      .write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
  ASSERT_EQ(files.tensors.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    const TensorView& tensor = files.tensors[i];
    tensor.file->drop(tensor.bytes);
    EXPECT_EQ(
        before[i],
        std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()))
        << tensor.name;
  }
}

// TOK-07: the union of config.json, generation_config.json and the tokenizer.
TEST_F(ModelDirectory, SeveralEndTokens) {
  folder_.write("generation_config.json", R"({"eos_token_id":[2,263]})");
  EXPECT_THAT(open().tokenizer.eos_token_ids, ElementsAre(2, 263));
  folder_.write("generation_config.json", R"({"eos_token_id":263})");
  EXPECT_THAT(open().tokenizer.eos_token_ids, ElementsAre(263, 2));
  folder_.write("generation_config.json", R"({"eos_token_id":null})");
  config(R"({"model_type":"llama","eos_token_id":null})");
  EXPECT_THAT(open().tokenizer.eos_token_ids, ElementsAre(2));
  folder_.write("tokenizer_config.json", R"({"eos_token":"<end>"})");
  EXPECT_THAT(open().tokenizer.eos_token_ids, ElementsAre(264));  // in the vocabulary only
  folder_.write("generation_config.json", R"({"eos_token_id":["x"]})");
  EXPECT_THAT(error(), HasSubstr("generation_config.json"));
  folder_.write("generation_config.json", R"({"eos_token_id":-1})");
  EXPECT_THAT(open().tokenizer.eos_token_ids, ElementsAre(264));
}

// Conversions of chat models often name one end token and leave out the one that ends a turn.
TEST_F(ModelDirectory, SpecialTokensThatEndATurn) {
  folder_.write("tokenizer.json", R"({
    "added_tokens": [
      {"id": 2, "content": "</s>", "special": true},
      {"id": 7, "content": "<end_of_turn>", "special": true},
      {"id": 8, "content": "<|im_end|>", "special": false},
      {"id": 9, "content": "<|other|>", "special": true}],
    "model": {"type": "BPE", "vocab": {"<|eot_id|>": 5}, "merges": []}})");
  EXPECT_THAT(open().tokenizer.eos_token_ids, ElementsAre(2, 7));
  config(R"({"model_type":"llama","eos_token_id":[7,2]})");
  EXPECT_THAT(open().tokenizer.eos_token_ids, ElementsAre(7, 2));
}

// TOK-01: no BOS in the configuration means none.
TEST_F(ModelDirectory, BosOrNone) {
  folder_.write("tokenizer_config.json", R"({"eos_token":"</s>","bos_token":null})");
  EXPECT_EQ(open().tokenizer.bos_token_id, std::nullopt);
  EXPECT_FALSE(open().tokenizer.add_bos);
  // Without the flag the post-processor tells.
  folder_.write("tokenizer_config.json", R"({"bos_token":"<s>"})");
  EXPECT_TRUE(open().tokenizer.add_bos);
  folder_.write("tokenizer_config.json", R"({"bos_token":"<other>"})");
  EXPECT_FALSE(open().tokenizer.add_bos);
  folder_.write("tokenizer_config.json", R"({"bos_token":"<s>","add_bos_token":false})");
  EXPECT_FALSE(open().tokenizer.add_bos);
  EXPECT_EQ(open().tokenizer.bos_token_id, 1);
  fs::remove(folder_ / "tokenizer_config.json");
  EXPECT_EQ(open().tokenizer.bos_token_id, 1);  // config.json's
  folder_.write("special_tokens_map.json", R"({"bos_token":"<s>","eos_token":"</s>"})");
  EXPECT_EQ(open().tokenizer.tokenizer_config.at("eos_token"), "</s>");
  EXPECT_TRUE(open().tokenizer.add_bos);
}

TEST_F(ModelDirectory, TokenizersThatCannotBeRead) {
  fs::remove(folder_ / "tokenizer.json");
  EXPECT_THAT(open().notes, ElementsAre(HasSubstr("has no tokenizer")));
  EXPECT_EQ(open().tokenizer.tokenizer_json, "");
  folder_.write("tokenizer.model", "x");
  EXPECT_THAT(error(), HasSubstr("has tokenizer.model but no tokenizer.json"));
  EXPECT_THAT(error(), HasSubstr("save_pretrained"));
  folder_.write("tokenizer.json", "{\"a\":");
  EXPECT_THAT(error(), HasSubstr("tokenizer.json: not valid JSON"));
  folder_.write("tokenizer.json", "{]");
  EXPECT_THAT(error(), HasSubstr("tokenizer.json: not valid JSON at byte 1"));
}

TEST_F(ModelDirectory, ChatTemplates) {
  folder_.write(
      "tokenizer_config.json",
      R"({"chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}]})");
  auto templates = open().chat_templates;
  ASSERT_EQ(templates.size(), 2u);
  EXPECT_EQ(templates[1].name, "tool_use");
  EXPECT_EQ(templates[1].text, "B");
  folder_.write("chat_template.json", R"({"chat_template":"C"})");
  EXPECT_EQ(open().chat_templates[0].text, "C");
  folder_.write(
      "chat_template.jinja",
      "\xef\xbb\xbf"
      "D");  // as some editors write it
  folder_.write("additional_chat_templates/rag.jinja", "E");
  templates = open().chat_templates;
  ASSERT_EQ(templates.size(), 3u);
  EXPECT_EQ(templates[0].text, "D");
  EXPECT_EQ(templates[2].name, "rag");
  EXPECT_EQ(templates[2].text, "E");
  folder_.write("tokenizer_config.json", R"({"chat_template":5})");
  EXPECT_THAT(error(), HasSubstr("chat_template"));
  folder_.write("tokenizer_config.json", R"({"chat_template":[{"name":"x"}]})");
  EXPECT_THAT(error(), HasSubstr("\"template\""));
}

TEST_F(ModelDirectory, ConfigsThatAreNone) {
  config("");
  EXPECT_THAT(error(), HasSubstr("config.json: not valid JSON"));
  config("[]");
  EXPECT_THAT(error(), HasSubstr("want a JSON object"));
  config("{}");
  EXPECT_THAT(error(), HasSubstr("\"model_type\" is missing"));
  config(R"({"model_type":5})");
  EXPECT_THAT(error(), HasSubstr("model_type is 5"));
  config(std::string(5000, '['));
  EXPECT_THAT(error(), HasSubstr("deep"));
  config("\xef\xbb\xbf{\"model_type\":\"llama\"}");
  EXPECT_EQ(open().config.at("model_type"), "llama");
  fs::remove(folder_ / "config.json");
  EXPECT_THAT(error(), HasSubstr("neither a config.json nor a GGUF file"));
  ASSERT_EQ(::mkfifo((folder_ / "config.json").c_str(), 0600), 0);
  EXPECT_THAT(error(), HasSubstr("not a regular file"));
}

TEST_F(ModelDirectory, FilesInsteadOfTheDirectory) {
  EXPECT_THAT(
      user_error([&] { open_model((folder_ / "model.safetensors").string()); }),
      HasSubstr("name the directory"));
  EXPECT_THAT(
      user_error([&] { open_model((folder_ / "tokenizer.json").string()); }),
      HasSubstr("not a GGUF file"));
}

TEST_F(ModelDirectory, MultimodalModelsKeepTheirLanguagePart) {
  config(R"({"model_type":"gemma3","eos_token_id":[1,106],
             "quantization":{"group_size":64,"bits":4,
                             "language_model.model.layers.0.mlp.up_proj":{"bits":8,"group_size":64},
                             "vision_tower.x":false},
             "text_config":{"model_type":"gemma3_text","hidden_size":64},
             "vision_config":{}})");
  tensors(
      {"language_model.model.norm.weight",
       "language_model.model.layers.0.mlp.up_proj.weight",
       "vision_tower.x.weight",
       "multi_modal_projector.y"});
  const ModelFiles files = open();
  EXPECT_EQ(files.config.at("model_type"), "gemma3_text");
  EXPECT_EQ(files.config.at("hidden_size"), 64);
  ASSERT_EQ(files.tensors.size(), 2u);
  EXPECT_EQ(files.tensors[0].name, "model.norm.weight");
  EXPECT_EQ(files.tensors[1].name, "model.layers.0.mlp.up_proj.weight");
  EXPECT_THAT(files.tokenizer.eos_token_ids, ElementsAre(1, 106, 2));
  EXPECT_TRUE(files.config.at("quantization").as_object().contains("model.layers.0.mlp.up_proj"));
  EXPECT_THAT(files.notes, ElementsAre(HasSubstr("2 tensors of the image or audio part")));

  tensors({"model.language_model.norm.weight", "model.vision_tower.z", "lm_head.weight"});
  const ModelFiles later = open();
  ASSERT_EQ(later.tensors.size(), 2u);
  EXPECT_EQ(later.tensors[0].name, "model.norm.weight");
  EXPECT_EQ(later.tensors[1].name, "lm_head.weight");
}

TEST_F(ModelDirectory, Quantization) {
  config(R"({"model_type":"llama","quantization_config":{"group_size":64,"bits":4}})");
  EXPECT_EQ(open().config.at("quantization").at("bits"), 4);
  config(R"({"model_type":"llama","quantization_config":{"quant_method":"gptq","bits":4}})");
  EXPECT_THAT(error(), HasSubstr("the method gptq"));
  config(R"({"model_type":"llama","quantization":{"group_size":64,"bits":4,
             "model.norm":{"bits":8},"model.other":false}})");
  EXPECT_THAT(open().notes, ElementsAre(HasSubstr("model.other matches no tensor")));
  config(R"({"model_type":"llama","quantization":5})");
  EXPECT_THAT(error(), HasSubstr("quantization"));
}

// ST-04: a snapshot of the hub cache is a folder of links.
TEST_F(ModelDirectory, HubSnapshot) {
  test::TempFolder cache;
  const fs::path repo = cache / "models--org--tiny";
  fs::create_directories(repo / "snapshots" / "abc");
  fs::create_directories(repo / "blobs");
  int number = 0;
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    const std::string blob = "blob" + std::to_string(number++);
    fs::copy_file(entry.path(), repo / "blobs" / blob);
    fs::create_symlink(
        fs::path("../../blobs") / blob, repo / "snapshots" / "abc" / entry.path().filename());
  }
  cache.write("models--org--tiny/refs/main", "abc\n");
  test::ScopedEnvironment environment("HF_HUB_CACHE", cache.path().c_str());
  const ModelFiles files = open_model("org/tiny");
  EXPECT_EQ(files.path, repo / "snapshots" / "abc");
  EXPECT_EQ(files.tensors.size(), 2u);
}

test::GgufBytes tiny_gguf() {
  test::GgufBytes file;
  file.key_string("general.architecture", "llama")
      .key_u32("llama.block_count", 1)
      .key_u32("llama.context_length", 16)
      .key_u32("llama.embedding_length", 4)
      .key_u32("llama.feed_forward_length", 4)
      .key_u32("llama.attention.head_count", 2)
      .key_string("tokenizer.ggml.model", "llama")
      .key_strings(
          "tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<|im_end|>", "<end_of_turn>", "x"})
      .key_array<float>("tokenizer.ggml.scores", 6, {0, 0, 0, 0, 0, 0})
      .key_array<int32_t>("tokenizer.ggml.token_type", 5, {2, 3, 3, 3, 1, 1})
      .key_u32("tokenizer.ggml.bos_token_id", 1)
      .key_u32("tokenizer.ggml.eos_token_id", 2)
      .key_string("tokenizer.chat_template", "main")
      .key_string("tokenizer.chat_template.tool_use", "tools");
  return file;
}

TEST(GgufModel, TokenizerAndTemplates) {
  test::TempFolder folder;
  auto file = tiny_gguf();
  file.tensor_f32("token_embd.weight", {4, 6}).tensor_f32("output_norm.weight", {4});
  const auto path = folder.write("m.gguf", file.build());
  const ModelFiles files = open_model(path.string());
  EXPECT_EQ(files.container, "gguf");
  EXPECT_EQ(files.path, path);
  EXPECT_EQ(files.tokenizer.bos_token_id, 1);
  // <|im_end|> is a control token, <end_of_turn> a word here.
  EXPECT_THAT(files.tokenizer.eos_token_ids, ElementsAre(2, 3));
  EXPECT_TRUE(files.tokenizer.add_bos);  // SentencePiece's default
  ASSERT_TRUE(files.tokenizer.vocabulary);
  EXPECT_EQ(files.tokenizer.vocabulary->tokens.size(), 6u);
  EXPECT_EQ(files.tokenizer.tokenizer_config.at("eos_token"), "</s>");
  ASSERT_EQ(files.chat_templates.size(), 2u);
  EXPECT_EQ(files.chat_templates[0].text, "main");
  EXPECT_EQ(files.chat_templates[1].name, "tool_use");
  EXPECT_EQ(files.metadata.at("llama.block_count"), 1);
  EXPECT_EQ(files.tensors[0].name, "model.embed_tokens.weight");
  // The folder means its only model.
  EXPECT_EQ(open_model(folder.path().string()).path, path);
  // Many GGUF repositories carry a config.json.
  folder.write("config.json", "{}");
  EXPECT_EQ(open_model(folder.path().string()).path, path);
  folder.write("n.gguf", "x");
  EXPECT_THAT(user_error([&] { open_model(folder.path().string()); }), HasSubstr("m.gguf, n.gguf"));
}

TEST(GgufModel, SamplingAsItsMakersDo) {
  test::TempFolder folder;
  auto file = tiny_gguf();
  file.key_f32("general.sampling.temp", 0.5f)
      .key_u32("general.sampling.top_k", 20)
      .key_f32("general.sampling.penalty_repeat", 1.25f)
      .tensor_f32("token_embd.weight", {4, 6});
  const ModelFiles files = open_model(folder.write("m.gguf", file.build()).string());
  EXPECT_EQ(files.generation_config.at("temperature").to_number<double>(), 0.5);
  EXPECT_EQ(files.generation_config.at("top_k").to_number<int>(), 20);
  EXPECT_EQ(files.generation_config.at("repetition_penalty").to_number<double>(), 1.25);
  EXPECT_EQ(files.generation_config.at("do_sample"), true);
  EXPECT_FALSE(files.generation_config.contains("top_p"));
  auto plain = tiny_gguf();
  plain.tensor_f32("token_embd.weight", {4, 6});
  EXPECT_TRUE(open_model(folder.write("n.gguf", plain.build()).string()).generation_config.empty());
}

TEST(GgufModel, TokensOutsideTheVocabulary) {
  test::TempFolder folder;
  auto file = tiny_gguf();
  file.key_u32("tokenizer.ggml.eot_token_id", 6);
  const auto path = folder.write("m.gguf", file.build());
  EXPECT_THAT(
      user_error([&] { open_model(path.string()); }),
      HasSubstr("tokenizer.ggml.eot_token_id is 6, but the vocabulary has 6 tokens"));
}

TEST(GgufModel, SplitSetsAreOneModel) {
  test::TempFolder folder;
  auto first = tiny_gguf();
  first.key_u16("split.no", 0).key_u16("split.count", 2);
  first.tensor_f32("token_embd.weight", {4, 6});
  test::GgufBytes second;
  second.key_u16("split.no", 1).key_u16("split.count", 2);
  second.tensor_f32("output_norm.weight", {4});
  folder.write("m-00001-of-00002.gguf", first.build());
  const auto path = folder.write("m-00002-of-00002.gguf", second.build());
  const ModelFiles files = open_model(path.string());
  EXPECT_EQ(files.path.filename(), "m-00001-of-00002.gguf");
  ASSERT_EQ(files.tensors.size(), 2u);
  EXPECT_EQ(files.tensors[1].name, "model.norm.weight");
  second.tensor_f32("token_embd.weight", {4, 6});
  folder.write("m-00002-of-00002.gguf", second.build());
  EXPECT_THAT(
      user_error([&] { open_model(path.string()); }),
      HasSubstr("tensor token_embd.weight is in another part too"));
}

TEST(GgufModel, AdaptersAreRefused) {
  test::TempFolder folder;
  auto file = tiny_gguf();
  file.key_string("general.type", "adapter");
  const auto path = folder.write("a.gguf", file.build());
  EXPECT_THAT(user_error([&] { open_model(path.string()); }), HasSubstr("type adapter"));
}

TEST(TokenizerScan, UnigramVocabularyAndSequencedProcessors) {
  const char* text = R"({
    "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<b>"}}]}]},
    "added_tokens": [{"id": 7, "content": "<e>"}, {"content": "none"}],
    "model": {"type": "Unigram", "vocab": [["<u>", 0.0], ["a\"b", -1], ["c", -2]]}})";
  const auto facts = scan_tokenizer_json(text, {"<e>", "a\"b", "c", "none", "zz"}, "t");
  EXPECT_EQ(facts.ids.size(), 3u);
  EXPECT_EQ(facts.ids.at("<e>"), 7);
  EXPECT_EQ(facts.ids.at("a\"b"), 1);
  EXPECT_EQ(facts.ids.at("c"), 2);
  EXPECT_THAT(facts.post_processor_tokens, ElementsAre("<b>"));
}

TEST(TokenizerScan, ProcessorsOfAnotherShape) {
  for (const char* text :
       {R"({"post_processor": {"SpecialToken": {"id": "<s>"}}})",
        R"({"post_processor": {"id": "<s>"}})",
        R"({"post_processor": "<s>"})",
        R"({"post_processor": {"pair": [{"SpecialToken": {"id": "<s>"}}]}})"}) {
    EXPECT_THAT(scan_tokenizer_json(text, {"<s>"}, "t").post_processor_tokens, IsEmpty()) << text;
  }
}

// The real files: see scripts/test.
class RealModels : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("QUINCE_TEST_MODELS");
    if (!folder) {
      GTEST_SKIP() << "QUINCE_TEST_MODELS is not set";
    }
    folder_ = folder;
  }
  fs::path folder_;
};

TEST_F(RealModels, SmolLM2) {
  const ModelFiles files = open_model((folder_ / "SmolLM2-135M-Instruct.Q4_1.gguf").string());
  EXPECT_EQ(files.config.at("model_type"), "llama");
  EXPECT_EQ(files.config.at("num_hidden_layers"), 30);
  EXPECT_EQ(files.config.at("num_key_value_heads"), 3);
  EXPECT_EQ(files.config.at("rope_theta"), 100000.0);
  EXPECT_EQ(files.config.at("tie_word_embeddings"), true);
  EXPECT_EQ(files.tensors.size(), 272u);
  EXPECT_FALSE(files.tokenizer.add_bos);
  EXPECT_EQ(files.chat_templates.size(), 1u);
  Weights weights(files.tensors, "SmolLM2", {});
  const TensorView q = weights.take("model.layers.29.self_attn.q_proj.weight", {576, 576});
  EXPECT_EQ(q.type, TensorType::q4_1);
  EXPECT_EQ(q.row_order.size(), 576u);
}

TEST_F(RealModels, Gemma3) {
  const auto start = std::chrono::steady_clock::now();
  const ModelFiles files = open_model((folder_ / "gemma-3-270m-q4_k_m.gguf").string());
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(files.config.at("model_type"), "gemma3_text");
  EXPECT_EQ(files.config.at("head_dim"), 256);
  EXPECT_EQ(files.config.at("query_pre_attn_scalar"), 256);
  EXPECT_EQ(files.config.at("layer_types").as_array()[5], "full_attention");
  EXPECT_EQ(files.config.at("sliding_window"), 512);
  EXPECT_THAT(files.tokenizer.eos_token_ids, ElementsAre(1, 106));
  EXPECT_TRUE(files.tokenizer.add_bos);
  EXPECT_EQ(files.tokenizer.vocabulary->tokens.size(), 262144u);
  EXPECT_LT(elapsed.count(), 1.0);  // generous: the machine may be busy
}

}  // namespace
}  // namespace quince
