// Prompt caches in files: where positions lie in rings, what comes back of what was written, and
// that nothing odd is believed. Whether mlx-lm agrees is check_prompt_cache.py's business.
#include "cache/prompt_cache_file.h"

#include <deque>
#include <random>

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "weights/files.h"

namespace quince::test {
namespace {

using testing::HasSubstr;

// The ring as mlx-lm keeps it: what lies in each row.
struct Ring {
  int64_t max_size;
  int64_t keep;
  std::vector<int64_t> rows{};  // positions
  int64_t next = 0;
  int64_t length = 0;

  void one() {  // _update_in_place
    if (next == max_size) {
      next = keep;
    }
    if (next == std::ssize(rows)) {
      rows.push_back(length);
    } else {
      rows[static_cast<size_t>(next)] = length;
    }
    ++next;
    ++length;
  }
};

TEST(PromptCacheLayer, FindsEveryPositionOfARing) {
  for (const auto& [max_size, keep] : {std::pair<int64_t, int64_t>{7, 0}, {8, 3}, {5, 1}}) {
    Ring ring{max_size, keep};
    for (int i = 0; i < 40; ++i) {
      ring.one();
      PromptCacheLayer layer;
      layer.max_size = max_size;
      layer.keep = keep;
      layer.length = ring.length;
      layer.next = ring.next;
      layer.rows = std::ssize(ring.rows);
      for (int64_t p = -1; p <= ring.length; ++p) {
        const auto at = std::find(ring.rows.begin(), ring.rows.end(), p);
        const auto row = layer.row_of(p);
        ASSERT_EQ(row.has_value(), at != ring.rows.end()) << p << " of " << ring.length;
        if (row) {
          ASSERT_EQ(*row, at - ring.rows.begin());
        }
      }
    }
  }
}

float number(int layer, int64_t position, int64_t head, int64_t d, bool value) {
  return static_cast<float>(layer + 1) * 0.5f + static_cast<float>(position) +
         static_cast<float>(head) * 0.25f + static_cast<float>(d) * 0.03125f +
         (value ? 100.0f : 0.0f);
}

bool give(int layer, int64_t position, float* keys, float* values) {
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t d = 0; d < 4; ++d) {
      keys[head * 4 + d] = number(layer, position, head, d, false);
      values[head * 4 + d] = number(layer, position, head, d, true);
    }
  }
  return true;
}

PromptCacheSpec spec_of(size_t tokens) {
  PromptCacheSpec spec;
  spec.layers = {{}, {8, 0}, {10, 3}};
  spec.kv_heads = 2;
  spec.head_dim = 4;
  spec.type = TensorType::f32;
  for (size_t i = 0; i < tokens; ++i) {
    spec.tokens.push_back(static_cast<int32_t>(i * 3));
  }
  spec.model = "abc";
  spec.model_name = "some/model";
  return spec;
}

TEST(PromptCacheFile, ComesBackAsItWent) {
  const TempFolder folder;
  for (const TensorType type : {TensorType::f32, TensorType::f16, TensorType::bf16}) {
    for (const size_t tokens : {1, 5, 9, 12, 40}) {
      PromptCacheSpec spec = spec_of(tokens);
      spec.type = type;
      write_prompt_cache(folder / "c.safetensors", spec, give);
      const PromptCacheFile file = open_prompt_cache(folder / "c.safetensors");
      EXPECT_EQ(file.length, static_cast<int64_t>(tokens));
      EXPECT_EQ(file.tokens, spec.tokens);
      EXPECT_EQ(file.model, "abc");
      EXPECT_EQ(file.layers[2].kind, "RotatingKVCache");
      std::vector<float> keys(8);
      std::vector<float> values(8);
      const float tolerance = type == TensorType::bf16 ? 0.5f : type == TensorType::f16 ? 0.1f : 0;
      for (int layer = 0; layer < 3; ++layer) {
        for (int64_t p = 0; p < file.length; ++p) {
          const bool there = layer == 0   ? true
                             : layer == 1 ? p >= file.length - 8
                                          : p < 3 || p >= file.length - 7 || file.length <= 10;
          ASSERT_EQ(file.layers[static_cast<size_t>(layer)].row_of(p).has_value(), there);
          if (there) {
            file.read(layer, p, 4, keys.data(), values.data());
            ASSERT_NEAR(keys[5], number(layer, p, 1, 1, false), tolerance);
            ASSERT_NEAR(values[2], number(layer, p, 0, 2, true), tolerance);
          }
        }
      }
    }
  }
}

TEST(PromptCacheFile, TheOldestRowOfAFullRingMayBeMissing) {
  const TempFolder folder;
  const auto rows = [](int layer, int64_t p, float* keys, float* values) {
    return (layer != 1 || p != 12) && give(layer, p, keys, values);
  };
  write_prompt_cache(folder / "c", spec_of(20), rows);
  EXPECT_EQ(open_prompt_cache(folder / "c").layers[1].rows, 8);
  const auto less = [](int layer, int64_t p, float* keys, float* values) {
    return (layer != 1 || p > 13) && give(layer, p, keys, values);
  };
  EXPECT_THROW(write_prompt_cache(folder / "d", spec_of(20), less), UserError);
  EXPECT_FALSE(std::filesystem::exists(folder / "d"));
}

// More than the ring needs, from a position on that the writer still has.
TEST(PromptCacheFile, RingsCanBeWrittenWithOlderRows) {
  const TempFolder folder;
  PromptCacheSpec spec = spec_of(40);
  spec.layers[1].first = 20;
  spec.layers[2].first = 0;
  write_prompt_cache(folder / "c", spec, give);
  const PromptCacheFile file = open_prompt_cache(folder / "c");
  EXPECT_EQ(file.layers[1].rows, 20);
  EXPECT_EQ(file.layers[2].rows, 40);
  std::vector<float> keys(8);
  std::vector<float> values(8);
  for (int64_t p = 0; p < 40; ++p) {
    EXPECT_EQ(file.layers[1].row_of(p).has_value(), p >= 20) << p;
    for (const int layer : {1, 2}) {
      if (file.layers[static_cast<size_t>(layer)].row_of(p)) {
        file.read(layer, p, 4, keys.data(), values.data());
        EXPECT_EQ(keys[5], number(layer, p, 1, 1, false));
      }
    }
  }
}

// What is there and is no file stays as it is; of a link, what it leads to is written.
TEST(PromptCacheFile, OnlyFilesAreReplaced) {
  namespace fs = std::filesystem;
  const TempFolder folder;
  fs::create_directory(folder / "sub");
  EXPECT_THROW(write_prompt_cache(folder / "sub", spec_of(12), give), UserError);
  EXPECT_TRUE(fs::is_directory(folder / "sub"));
  EXPECT_THROW(write_prompt_cache("/dev/full", spec_of(12), give), UserError);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  write_prompt_cache(folder / "sub/c", spec_of(12), give);
  fs::create_symlink(folder / "sub/c", folder / "link");
  write_prompt_cache(folder / "link", spec_of(20), give);
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(open_prompt_cache(folder / "sub/c").length, 20);
}

std::string refusal_of(std::string_view bytes) {
  try {
    parse_prompt_cache(std::as_bytes(std::span(bytes)), "c", nullptr);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(PromptCacheFile, DamageIsSeenAnywhere) {
  const TempFolder folder;
  write_prompt_cache(folder / "c", spec_of(12), give);
  const std::string good = read_file(folder / "c");
  EXPECT_EQ(refusal_of(good), "");
  uint64_t head = 0;
  std::memcpy(&head, good.data(), sizeof(head));
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    const std::string refusal = refusal_of(bad);
    ASSERT_NE(refusal, "") << at;
    if (at >= sizeof(head) + head && at < good.size() - 9 * 4) {  // keys and values
      ASSERT_THAT(refusal, HasSubstr("c: damaged: its checksum")) << at;
    }
  }
}

TEST(PromptCacheFile, NothingOddIsBelieved) {
  const TempFolder folder;
  write_prompt_cache(folder / "c.safetensors", spec_of(12), give);
  std::string good = read_file(folder / "c.safetensors");
  const auto refusal = [&](std::string_view from, std::string_view to) {
    std::string bad = good;
    const size_t at = bad.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    return refusal_of(bad);
  };
  EXPECT_THAT(refusal("\"KVCache\"", "\"XVCache\""), HasSubstr("want KVCache"));
  EXPECT_THAT(refusal("\"1.0\":", "\"9.0\":"), HasSubstr("not a prompt cache"));
  EXPECT_THAT(refusal("\"0.1\":", "\"0.7\":"), HasSubstr("tensor 0.1 is missing"));
  EXPECT_THAT(refusal("[0,3,6,", "[0,3,-6"), HasSubstr("is not a token"));
  EXPECT_THAT(refusal("[0,3,6,", "[0,3   "), testing::Not(""));
  EXPECT_THAT(refusal("0.quince_sum", "0.quince_old"), HasSubstr("damaged"));
  // As a file of mlx-lm, which has no sum.
  for (const std::string_view name : {"0.quince_sum", "0.quince_model"}) {
    good.replace(good.find(name), name.size(), std::string(name.size(), 'x'));
  }
  // Numbers of the state: any value is either sound or refused, and reading never leaves the rows.
  std::mt19937 random(2);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bad = good;
    const size_t numbers = bad.size() - 9 * 4;  // 1 + 4 + 4 of them, at the end
    const auto value = static_cast<int32_t>(random() % 64) - 8;
    std::memcpy(bad.data() + numbers + random() % 9 * 4, &value, 4);
    try {
      const auto file = parse_prompt_cache(std::as_bytes(std::span(bad)), "c", nullptr);
      for (const PromptCacheLayer& layer : file.layers) {
        for (int64_t p = 0; p < file.length; ++p) {
          const auto row = layer.row_of(p);
          ASSERT_TRUE(!row || (*row >= 0 && *row < layer.rows));
        }
      }
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 3000);
}

}  // namespace
}  // namespace quince::test
