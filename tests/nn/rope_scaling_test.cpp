#include "nn/rope_scaling.h"

#include <cmath>

#include <gmock/gmock-matchers.h>

#include "base/error.h"

namespace quince {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

RopeSpec make(
    const json::value& scaling, int dims = 128, double theta = 500000.0, int positions = 131072) {
  return make_rope(
      {.dims = dims,
       .theta = theta,
       .max_positions = positions,
       .scaling = scaling.is_object() ? &scaling.get_object() : nullptr,
       .source = "config.json of x"});
}

std::string error_of(const json::value& scaling) {
  try {
    make(scaling);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

const json::object kLlama3{
    {"rope_type", "llama3"},
    {"factor", 8.0},
    {"low_freq_factor", 1.0},
    {"high_freq_factor", 4.0},
    {"original_max_position_embeddings", 8192}};

void expect_llama3(const RopeSpec& rope) {
  const std::pair<size_t, double> known[] = {// from Llama 3.1's reference implementation
                                             {0, 1.0},
                                             {28, 0.00321144599},
                                             {30, 0.00137189357},
                                             {34, 0.000178507813},
                                             {40, 3.4281022e-05},
                                             {63, 3.06892599e-07}};
  ASSERT_EQ(rope.inv_freq.size(), 64u);
  for (const auto& [i, want] : known) {
    EXPECT_NEAR(rope.inv_freq[i] / want, 1.0, 1e-5) << i;
  }
  EXPECT_EQ(rope.attention_factor, 1.0f);
  EXPECT_EQ(rope.plain_base, 0.0f);
}

TEST(RopeScaling, Llama3UnderBothNamesOfTheKind) {
  expect_llama3(make(kLlama3));
  json::object old = kLlama3;
  old.erase("rope_type");
  old["type"] = "llama3";
  expect_llama3(make(old));
}

TEST(RopeScaling, NullAndDefaultArePlain) {
  for (const json::value& scaling :
       {json::value(nullptr), json::value(json::object{{"rope_type", "default"}})}) {
    const RopeSpec rope = make(scaling, 64, 10000.0);
    EXPECT_EQ(rope.plain_base, 10000.0f);
    ASSERT_EQ(rope.inv_freq.size(), 32u);
    for (size_t i = 0; i < 32; ++i) {
      EXPECT_FLOAT_EQ(rope.inv_freq[i], std::pow(10000.0, -2.0 * static_cast<double>(i) / 64.0));
    }
  }
}

TEST(RopeScaling, ThetaInsideTheObjectGoesFirst) {
  const RopeSpec rope =
      make(json::object{{"rope_type", "default"}, {"rope_theta", 100.0}}, 4, 10000.0);
  EXPECT_FLOAT_EQ(rope.inv_freq[1], 0.1f);
}

TEST(RopeScaling, LinearDividesEveryFrequency) {
  const RopeSpec plain = make(nullptr, 64, 10000.0);
  const RopeSpec rope = make(json::object{{"type", "linear"}, {"factor", 4.0}}, 64, 10000.0);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_FLOAT_EQ(rope.inv_freq[i], plain.inv_freq[i] / 4.0f);
  }
}

TEST(RopeScaling, DynamicStretchesTheBaseBeyondTheTrainedLength) {
  const RopeSpec rope = make(json::object{{"type", "dynamic"}, {"factor", 2.0}}, 64, 10000.0, 1000);
  EXPECT_EQ(inv_freq_at(rope, 1000), rope.inv_freq);
  EXPECT_EQ(rope.original_length, 1000);
  const std::vector<float> longer = inv_freq_at(rope, 3000);
  const double base = 10000.0 * std::pow(2.0 * 3.0 - 1.0, 64.0 / 62.0);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_FLOAT_EQ(longer[i], std::pow(base, -2.0 * static_cast<double>(i) / 64.0));
  }
}

TEST(RopeScaling, YarnKeepsFastAndStretchesSlowDimensions) {
  const json::object yarn{
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}};
  const RopeSpec plain = make(nullptr, 128, 10000.0);
  const RopeSpec rope = make(yarn, 128, 10000.0);
  EXPECT_FLOAT_EQ(rope.inv_freq[0], plain.inv_freq[0]);
  EXPECT_FLOAT_EQ(rope.inv_freq[63], plain.inv_freq[63] / 4.0f);
  EXPECT_FLOAT_EQ(rope.attention_factor, 0.1f * std::log(4.0f) + 1.0f);
  json::object given = yarn;
  given["attention_factor"] = 1.25;
  EXPECT_FLOAT_EQ(make(given).attention_factor, 1.25f);
  given = yarn;
  given["mscale"] = 1.0;
  given["mscale_all_dim"] = 1.0;
  EXPECT_FLOAT_EQ(make(given).attention_factor, 1.0f);
}

TEST(RopeScaling, FactorsDivide) {
  const RopeSpec plain = make(nullptr, 4, 100.0);
  const RopeSpec rope =
      make(json::object{{"rope_type", "rope_freqs"}, {"factors", {1.0, 8.0}}}, 4, 100.0);
  EXPECT_EQ(rope.inv_freq, (std::vector<float>{plain.inv_freq[0], plain.inv_freq[1] / 8.0f}));
  EXPECT_EQ(rope.plain_base, 0.0f);
}

TEST(RopeScaling, WhatDoesNotFitIsRefusedByName) {
  EXPECT_THAT(
      error_of(json::object{{"rope_type", "banana"}}), HasSubstr("\"banana\" is not known"));
  EXPECT_THAT(error_of(json::object{{"rope_type", 5}}), HasSubstr("\"rope_type\" is 5"));
  EXPECT_THAT(error_of(json::object{{"rope_type", "linear"}}), HasSubstr("\"factor\" is missing"));
  EXPECT_THAT(
      error_of(json::object{{"type", "linear"}, {"factor", 0}}), HasSubstr("\"factor\" is 0"));
  EXPECT_THAT(
      error_of(json::object{{"type", "linear"}, {"factor", "2"}}), HasSubstr("want a number"));
  EXPECT_THAT(
      error_of(json::object{{"type", "rope_freqs"}, {"factors", {1.0}}}), HasSubstr("64 numbers"));
  json::object bad = kLlama3;
  bad["high_freq_factor"] = 1.0;
  EXPECT_THAT(error_of(bad), HasSubstr("\"high_freq_factor\" is 1"));
  bad = kLlama3;
  bad["low_freq_factor"] = -1.0;
  EXPECT_THAT(error_of(bad), HasSubstr("\"low_freq_factor\" is -1"));
}

}  // namespace
}  // namespace quince
