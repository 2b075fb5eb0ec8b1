// The models of known output, from a directory to greedy tokens, and the cases told with them.
#include "models/script_model.h"

#include <gmock/gmock-matchers.h>

#include "base/error.h"
#include "models/tiny_model.h"
#include "weights/files.h"
#include "weights/model_files.h"

namespace quince::test {
namespace {

class ScriptModel : public testing::TestWithParam<KernelSet> {
 protected:
  std::vector<int> greedy(
      const std::filesystem::path& directory, std::vector<int32_t> prompt, int most) {
    const auto model = load_model(open_model(directory.string()), load_options(GetParam()));
    const auto cache = model->make_cache({});
    std::vector<int> out;
    while (static_cast<int>(out.size()) < most && (out.empty() || out.back() != kScriptEnd)) {
      const std::vector<float> logits = append(*model, *cache, prompt);
      const auto last = logits.end() - kScriptVocabulary;
      out.push_back(static_cast<int>(std::max_element(last, logits.end()) - last));
      last_logits_.assign(last, logits.end());
      prompt = {out.back()};
    }
    return out;
  }

  TempFolder folder_;
  std::vector<float> last_logits_;
};

TEST_P(ScriptModel, SaysItsLine) {
  write_script_model(folder_ / "s", Script::script);
  EXPECT_EQ(greedy(folder_ / "s", {kScriptBos}, 50), script_chain());
}

TEST_P(ScriptModel, LoopsWithoutEnd) {
  write_script_model(folder_ / "l", Script::loop);
  const std::vector<int> out = greedy(folder_ / "l", {kScriptBos}, 300);
  ASSERT_EQ(out.size(), 300u);
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out[i], 269 + static_cast<int>(i % 3));
  }
}

TEST_P(ScriptModel, RepeatsTheMajority) {
  write_script_model(folder_ / "m", Script::majority);
  EXPECT_EQ(
      greedy(folder_ / "m", {266, 266, 266, 266, 267}, 4), (std::vector<int>{266, 266, 266, 266}));
  EXPECT_EQ(greedy(folder_ / "m", {267, 266, 267, 268, 267}, 3), (std::vector<int>{267, 267, 267}));
}

TEST_P(ScriptModel, ThrowsDice) {
  write_script_model(folder_ / "d", Script::dice);
  greedy(folder_ / "d", {kScriptBos}, 1);
  for (int i = 0; i < 5; ++i) {
    EXPECT_NEAR(last_logits_[static_cast<size_t>(266 + i)], 2.0f - static_cast<float>(i), 0.01f);
  }
  EXPECT_NEAR(last_logits_[300], -50.0f, 0.1f);
}

TEST_P(ScriptModel, TiedTheEmbeddingIsTheHead) {
  boost::json::object config = script_config();
  config["tie_word_embeddings"] = true;
  write_script_model(folder_ / "tied", Script::script, config);  // with a spare lm_head
  EXPECT_EQ(greedy(folder_ / "tied", {266}, 4), (std::vector<int>{266, 266, 266, 266}));
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, ScriptModel, testing::Values(KernelSet::mlx, KernelSet::native), [](const auto& info) {
      return info.param == KernelSet::mlx ? "mlx" : "native";
    });

}  // namespace
}  // namespace quince::test
