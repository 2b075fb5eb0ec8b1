#include "weights/model_identity.h"

#include <gtest/gtest.h>

#include "base/vocabulary.h"

namespace quince {
namespace {

ModelFiles small_model() {
  ModelFiles files;
  files.path = "somewhere";
  files.config = {{"model_type", "llama"}, {"rope_theta", 10000.0}};
  std::vector<std::byte> bytes(4096);
  files.tensors.push_back(make_tensor("a", TensorType::f16, {32, 64}, bytes));
  files.tensors.push_back(make_tensor("b", TensorType::u8, {3}, std::vector<std::byte>(3)));
  return files;
}

TEST(ModelIdentity, IsOfWhatIsInTheFilesNotOfWhereTheyLie) {
  ModelFiles moved = small_model();
  moved.path = "elsewhere";
  EXPECT_EQ(model_identity(moved), model_identity(small_model()));
  EXPECT_EQ(model_identity(moved).size(), 32u);
}

TEST(ModelIdentity, ChangesWithConfigVocabularyNamesTypesShapesAndBytes) {
  const std::string before = model_identity(small_model());
  const auto changed = [&](auto&& change) {
    ModelFiles files = small_model();
    change(files);
    return model_identity(files) != before;
  };
  EXPECT_TRUE(changed([](ModelFiles& f) { f.config["rope_theta"] = 500000.0; }));
  EXPECT_TRUE(changed([](ModelFiles& f) { f.tensors[0].name = "c"; }));
  EXPECT_TRUE(changed([](ModelFiles& f) { f.tokenizer.tokenizer_json = "{}"; }));
  const auto words = [](std::vector<std::string_view> tokens) {
    ModelFiles files = small_model();
    auto vocabulary = std::make_shared<Vocabulary>();
    vocabulary->tokens = std::move(tokens);
    files.tokenizer.vocabulary = std::move(vocabulary);
    return model_identity(files);
  };
  EXPECT_NE(words({"a", "b"}), before);
  EXPECT_NE(words({"a", "b"}), words({"a", "c"}));
  EXPECT_NE(words({"a", "b"}), words({"ab"}));
  EXPECT_TRUE(changed([](ModelFiles& f) { f.tensors[0].type = TensorType::bf16; }));
  EXPECT_TRUE(changed([](ModelFiles& f) { f.tensors[0].shape = {64, 32}; }));
  EXPECT_TRUE(changed([](ModelFiles& f) { f.tensors[0].add = 1.0f; }));
  EXPECT_TRUE(changed([](ModelFiles& f) { f.tensors[0].row_order = {1, 0}; }));
  EXPECT_TRUE(changed([](ModelFiles& f) { f.tensors.pop_back(); }));
  for (const size_t at : {0, 2048, 4095}) {
    EXPECT_TRUE(changed([&](ModelFiles& f) {
      std::vector<std::byte> bytes(4096);
      bytes[at] = std::byte{1};
      f.tensors[0] = make_tensor("a", TensorType::f16, {32, 64}, bytes);
    })) << at;
  }
}

}  // namespace
}  // namespace quince
