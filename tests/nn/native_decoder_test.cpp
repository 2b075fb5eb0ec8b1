#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>

#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/small_decoders.h"

namespace quince::test {
namespace {

namespace mx = mlx::core;

CacheOptions f32_cache() {
  CacheOptions options;
  options.keys = options.values = KvFormat::f32;
  return options;
}

float difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = a.empty() ? std::numeric_limits<float>::infinity() : 0.0f;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float d = std::abs(a[i] - b[i]);
    most = std::isnan(d) ? std::numeric_limits<float>::infinity() : std::max(most, d);
  }
  return most;
}

std::vector<int32_t> part(const std::vector<int32_t>& ids, size_t first, size_t count) {
  const auto begin = ids.begin() + static_cast<int64_t>(first);
  return {begin, begin + static_cast<int64_t>(count)};
}

struct NamedSpec {
  const char* name;
  DecoderSpec spec;
};

DecoderSpec wide_spec() {  // so many inner columns that even one row's are shared out
  DecoderSpec spec = plain_spec();
  spec.intermediate_size = 4112;
  spec.layers.resize(2);
  return spec;
}

std::vector<NamedSpec> specs() {
  return {{"plain", plain_spec()}, {"rich", rich_spec()}, {"wide", wide_spec()}};
}

TEST(NativeDecoder, MatchesTheComposedOneInEveryWayOfFeeding) {
  for (const NamedSpec& it : specs()) {
    const auto tensors = random_tensors(it.spec);
    const auto composed = make_small(it.spec, tensors, KernelSet::mlx);
    const auto ids = some_tokens(75, it.spec.vocab_size, 5);
    const auto oracle_cache = composed->make_cache(f32_cache());
    const std::vector<float> want = feed(*composed, *oracle_cache, ids);
    const auto vocab = static_cast<int64_t>(it.spec.vocab_size);
    for (const int threads : {1, 3}) {
      const auto native = make_small(it.spec, tensors, KernelSet::native, threads);
      for (const size_t chunk : {1u, 5u, 33u, 75u}) {
        const auto cache = native->make_cache(f32_cache());
        for (size_t i = 0; i < ids.size(); i += chunk) {
          const size_t n = std::min(chunk, ids.size() - i);
          const auto got = feed(*native, *cache, part(ids, i, n));
          const std::vector<float> expected(
              want.begin() + static_cast<int64_t>(i) * vocab,
              want.begin() + static_cast<int64_t>(i + n) * vocab);
          ASSERT_LT(difference(got, expected), 1e-4f)
              << it.name << " threads " << threads << " chunk " << chunk << " at " << i;
        }
      }
    }
  }
}

// A row must not notice what else is in the batch, nor how many threads compute it: to the bit.
TEST(NativeDecoder, RowsAreIndependentOfTheBatchAndTheTeam) {
  for (const NamedSpec& it : specs()) {
    const auto tensors = random_tensors(it.spec);
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 3}) {
      const auto native = make_small(it.spec, tensors, KernelSet::native, threads);
      for (const size_t company : {1u, 2u, 7u}) {
        std::vector<std::unique_ptr<Cache>> caches;
        std::vector<Segment> segments;
        std::vector<int32_t> ids;
        for (size_t s = 0; s <= company; ++s) {
          caches.push_back(native->make_cache({}));
          // The watched sequence comes last; the others have other texts and lengths.
          const bool watched = s == company;
          const int length = watched ? 150 : static_cast<int>(3 + 40 * s);
          feed(*native, *caches[s], some_tokens(length, it.spec.vocab_size, watched ? 9 : 20 + s));
          segments.push_back({caches[s].get(), 1});
          ids.push_back(watched ? 42 : static_cast<int32_t>(s));
        }
        results.push_back(
            floats_of(native->forward({token_array(ids), segments, {static_cast<int>(company)}})));
      }
    }
    for (const auto& result : results) {
      EXPECT_EQ(result, results.front()) << it.name;
    }
  }
}

// Drafted tokens must be judged as if they had been sampled one by one: to the bit.
TEST(NativeDecoder, FewRowsTogetherAreWhatTheyAreAlone) {
  for (const NamedSpec& it : specs()) {
    const auto native = make_small(it.spec, random_tensors(it.spec), KernelSet::native, 2);
    const auto ids = some_tokens(160, it.spec.vocab_size, 5);
    const size_t begin = 90;  // beyond the windows, and several blocks in
    const auto alone = native->make_cache({});
    feed(*native, *alone, part(ids, 0, begin));
    std::vector<float> want;
    for (size_t i = begin; i < ids.size(); ++i) {
      const auto row = feed(*native, *alone, part(ids, i, 1));
      want.insert(want.end(), row.begin(), row.end());
    }
    for (const size_t rows : {2u, 5u, 8u}) {
      const auto together = native->make_cache({});
      feed(*native, *together, part(ids, 0, begin));
      std::vector<float> got;
      for (size_t i = begin; i < ids.size(); i += rows) {
        const auto some = feed(*native, *together, part(ids, i, std::min(rows, ids.size() - i)));
        got.insert(got.end(), some.begin(), some.end());
      }
      EXPECT_EQ(got, want) << it.name << ", " << rows;
    }
  }
}

TEST(NativeDecoder, PromptsAndDecodeRowsInOneBatch) {
  for (const NamedSpec& it : specs()) {
    const auto native = make_small(it.spec, random_tensors(it.spec), KernelSet::native);
    const auto ids = some_tokens(120, it.spec.vocab_size, 3);
    const std::vector<size_t> before{0, 31, 64, 10, 70};
    const std::vector<size_t> fed{50, 1, 3, 1, 40};
    std::vector<std::unique_ptr<Cache>> caches;
    std::vector<Segment> segments;
    std::vector<int32_t> rows;
    std::vector<float> want;
    for (size_t s = 0; s < before.size(); ++s) {
      const auto alone = native->make_cache(f32_cache());
      caches.push_back(native->make_cache(f32_cache()));
      if (before[s] > 0) {
        feed(*native, *alone, part(ids, 0, before[s]));
        feed(*native, *caches[s], part(ids, 0, before[s]));
      }
      const auto more = part(ids, before[s], fed[s]);
      const auto expected = feed(*native, *alone, more);
      want.insert(want.end(), expected.begin(), expected.end());
      rows.insert(rows.end(), more.begin(), more.end());
      segments.push_back({caches[s].get(), static_cast<int>(fed[s])});
    }
    const auto got =
        floats_of(native->forward({token_array(rows), segments, all_rows(rows.size())}));
    EXPECT_LT(difference(got, want), 1e-4f) << it.name;

    // The same again with a few rows only.
    for (size_t s = 0; s < before.size(); ++s) {
      ASSERT_TRUE(caches[s]->trim(static_cast<int64_t>(fed[s])));
    }
    const std::vector<int> wanted{0, 49, 50, 52, 54, 93};
    const auto few = floats_of(native->forward({token_array(rows), segments, wanted}));
    std::vector<float> expected;
    for (const int row : wanted) {
      const auto first = want.begin() + static_cast<int64_t>(row) * it.spec.vocab_size;
      expected.insert(expected.end(), first, first + it.spec.vocab_size);
    }
    EXPECT_LT(difference(few, expected), 1e-4f) << it.name;
  }
}

TEST(NativeDecoder, NoLogitsWanted) {
  const DecoderSpec spec = rich_spec();
  const auto native = make_small(spec, random_tensors(spec), KernelSet::native);
  const auto ids = some_tokens(40, spec.vocab_size, 3);
  const auto whole = native->make_cache(f32_cache());
  const auto want = feed(*native, *whole, ids);
  for (const size_t chunk : {1u, 13u}) {
    const auto cache = native->make_cache(f32_cache());
    for (size_t i = 0; i < 39; i += chunk) {
      mx::array none = native->forward(
          {token_array(part(ids, i, chunk)), {{cache.get(), static_cast<int>(chunk)}}, {}});
      EXPECT_EQ(none.shape(), (mx::Shape{0, spec.vocab_size}));
      none.eval();
    }
    const auto got = feed(*native, *cache, part(ids, 39, 1));
    EXPECT_LT(difference(got, {want.end() - spec.vocab_size, want.end()}), 1e-4f);
  }
}

// Chunks are only built; evaluating the last one must run them all, in order.
TEST(NativeDecoder, StepsOfASequenceRunInOrderWhateverIsEvaluated) {
  const DecoderSpec spec = plain_spec();
  const auto native = make_small(spec, random_tensors(spec), KernelSet::native);
  const auto ids = some_tokens(60, spec.vocab_size, 3);
  const auto whole = native->make_cache(f32_cache());
  const auto want = feed(*native, *whole, ids);
  const auto cache = native->make_cache(f32_cache());
  std::optional<mx::array> last;
  for (size_t i = 0; i < 60; i += 12) {
    last = native->forward({token_array(part(ids, i, 12)), {{cache.get(), 12}}, {11}});
  }
  EXPECT_LT(difference(floats_of(*last), {want.end() - spec.vocab_size, want.end()}), 1e-4f);
}

// Greedy decoding with each step queued before the last one's token is known.
TEST(NativeDecoder, TokensMayBeTheLastStepsSamples) {
  const DecoderSpec spec = rich_spec();
  const auto native = make_small(spec, random_tensors(spec), KernelSet::native);
  const auto run = [&](bool ahead) {
    const auto cache = native->make_cache({});
    std::vector<int32_t> out;
    mx::array tokens = token_array({7});
    std::vector<mx::array> queued;
    for (int i = 0; i < 40; ++i) {
      mx::array next =
          mx::argmax(native->forward({tokens, {{cache.get(), 1}}, {0}}), -1);  // uint32
      if (ahead) {
        mx::async_eval(next);
        queued.push_back(next);
      } else {
        next.eval();
        out.push_back(static_cast<int32_t>(next.item<uint32_t>()));
      }
      tokens = next;
    }
    for (mx::array& token : queued) {
      out.push_back(static_cast<int32_t>(token.item<uint32_t>()));
    }
    return out;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(NativeDecoder, StridedTokens) {
  const DecoderSpec spec = plain_spec();
  const auto native = make_small(spec, random_tensors(spec), KernelSet::native);
  const auto ids = some_tokens(20, spec.vocab_size, 3);
  std::vector<int32_t> every_other;
  for (size_t i = 0; i < ids.size(); i += 2) {
    every_other.push_back(ids[i]);
  }
  const auto a = native->make_cache({});
  const auto b = native->make_cache({});
  const auto want = feed(*native, *a, every_other);
  const mx::array sliced = mx::slice(token_array(ids), {0}, {20}, {2});
  EXPECT_EQ(floats_of(native->forward({sliced, {{b.get(), 10}}, all_rows(10)})), want);
}

TEST(NativeDecoder, CachesMayGoWhileTheirStepIsQueued) {
  const DecoderSpec spec = plain_spec();
  const auto native = make_small(spec, random_tensors(spec), KernelSet::native);
  const auto ids = some_tokens(500, spec.vocab_size, 3);
  const auto kept = native->make_cache({});
  const auto want = feed(*native, *kept, ids);
  for (int i = 0; i < 5; ++i) {
    auto cache = native->make_cache({});
    mx::array logits = native->forward({token_array(ids), {{cache.get(), 500}}, all_rows(500)});
    mx::async_eval(logits);
    if (i % 2) {
      cache->clear();
    }
    cache.reset();
    EXPECT_EQ(floats_of(logits), want);
  }
}

TEST(NativeDecoder, RotatingCachesMatchTheComposedOnes) {
  for (const NamedSpec& it : specs()) {
    const auto tensors = random_tensors(it.spec);
    const auto composed = make_small(it.spec, tensors, KernelSet::mlx);
    const auto native = make_small(it.spec, tensors, KernelSet::native);
    for (const auto& [size, keep] : {std::pair{16, 4}, std::pair{40, 0}, std::pair{70, 35}}) {
      CacheOptions options = f32_cache();
      options.max_size = size;
      options.keep = keep;
      const auto a = composed->make_cache(options);
      const auto b = native->make_cache(options);
      const auto ids = some_tokens(200, it.spec.vocab_size, 8);
      size_t at = 0;
      for (const size_t n : {10u, 1u, 1u, 60u, 1u, 25u, 1u, 1u, 100u}) {
        const auto more = part(ids, at, n);
        ASSERT_LT(difference(feed(*native, *b, more), feed(*composed, *a, more)), 1e-4f)
            << it.name << " size " << size << " keep " << keep << " at " << at;
        at += n;
      }
      EXPECT_LT(b->bytes(), a->bytes() * 4);
    }
    CacheOptions bad;
    bad.max_size = 4;
    bad.keep = 4;
    EXPECT_THROW(native->make_cache(bad), UserError);
  }
}

TEST(NativeDecoder, SixteenBitCachesStayClose) {
  const DecoderSpec spec = rich_spec();
  const auto native = make_small(spec, random_tensors(spec), KernelSet::native);
  const auto ids = some_tokens(90, spec.vocab_size, 8);
  const auto exact = native->make_cache(f32_cache());
  const auto want = feed(*native, *exact, ids);
  for (const auto& [type, tolerance] :
       {std::pair{KvFormat::f16, 0.02f},
        {KvFormat::bf16, 0.2f},
        {KvFormat::q8, 0.3f},
        {KvFormat::q4, 4.0f}}) {
    CacheOptions options;
    options.keys = options.values = type;
    const auto cache = native->make_cache(options);
    const auto got = feed(*native, *cache, ids);
    EXPECT_LT(difference(got, want), tolerance);
    EXPECT_NE(got, want);
    EXPECT_LT(cache->bytes(), exact->bytes());
  }
}

TEST(NativeDecoder, BadTokensAreRefusedAndHarmNothing) {
  const DecoderSpec spec = plain_spec();
  const auto native = make_small(spec, random_tensors(spec), KernelSet::native);
  const auto cache = native->make_cache({});
  for (const int32_t id : {-1, spec.vocab_size, 1 << 30}) {
    EXPECT_THROW(native->forward({token_array({1, id}), {{cache.get(), 2}}, {1}}), UserError);
  }
  EXPECT_EQ(cache->length(), 0);
  // Computed tokens are known only when the step runs.
  const mx::array computed = token_array({100, 3}) + mx::array(100, mx::int32);
  mx::array logits = native->forward({computed, {{cache.get(), 2}}, {1}});
  EXPECT_THROW(logits.eval(), std::runtime_error);
  // The cache is usable again once it has been cleared, others always were.
  const auto fresh = native->make_cache({});
  const auto ids = some_tokens(9, spec.vocab_size, 3);
  cache->clear();
  EXPECT_EQ(feed(*native, *fresh, ids), feed(*native, *cache, ids));
}

TEST(NativeDecoder, OurOwnMistakesAreLogicErrors) {
  const DecoderSpec spec = plain_spec();
  const auto native = make_small(spec, random_tensors(spec), KernelSet::native);
  const auto composed = make_small(spec, random_tensors(spec), KernelSet::mlx);
  const auto cache = native->make_cache({});
  const auto foreign = composed->make_cache({});
  const mx::array two = token_array({1, 2});
  EXPECT_THROW(native->forward({two, {{foreign.get(), 2}}, {}}), std::logic_error);
  EXPECT_THROW(native->forward({two, {{cache.get(), 3}}, {}}), std::logic_error);
  EXPECT_THROW(native->forward({two, {{cache.get(), 0}}, {}}), std::logic_error);
  EXPECT_THROW(native->forward({two, {{cache.get(), 1}, {cache.get(), 1}}, {}}), std::logic_error);
  EXPECT_THROW(native->forward({two, {{cache.get(), 2}}, {1, 0}}), std::logic_error);
  EXPECT_THROW(native->forward({two, {{cache.get(), 2}}, {2}}), std::logic_error);
  EXPECT_EQ(cache->length(), 0);
}

TensorView tensor_of(const std::string& name, TensorType type, mx::array values) {
  values = mx::contiguous(values);
  values.eval();
  std::vector<std::byte> bytes(values.nbytes());
  std::memcpy(bytes.data(), values.data<std::byte>(), bytes.size());
  return make_tensor(name, type, {values.shape().begin(), values.shape().end()}, std::move(bytes));
}

// A small decoder in MLX triples, with layers of their own widths so that q, k and v cannot be
// stacked, one left plain, and one in a floating-point mode.
struct Quantized {
  DecoderSpec spec = plain_spec();
  boost::json::object config{{"group_size", 64}, {"bits", 4}};
  std::vector<TensorView> tensors;
};

Quantized quantized() {
  Quantized out;
  out.spec.hidden_size = 128;
  out.spec.intermediate_size = 192;
  out.spec.layers.resize(2);
  boost::json::object& config = out.config;
  config["model.layers.0.self_attn.v_proj"] = {{"group_size", 32}, {"bits", 8}};
  config["model.layers.1.self_attn.k_proj"] = {{"group_size", 32}, {"bits", 6}};
  config["model.layers.1.mlp.up_proj"] = {{"group_size", 32}, {"bits", 4}, {"mode", "mxfp4"}};
  config["model.layers.1.self_attn.o_proj"] = false;
  for (TensorView& tensor : random_tensors(out.spec)) {
    const std::string path = tensor.name.substr(0, tensor.name.rfind('.'));
    const boost::json::value* own = config.if_contains(path);
    if (tensor.shape.size() < 2 || (own && own->is_bool()) || tensor.columns() % 64 != 0) {
      out.tensors.push_back(std::move(tensor));
      continue;
    }
    const boost::json::object& layout = own ? own->as_object() : config;
    const std::string mode = layout.contains("mode") ? "mxfp4" : "affine";
    const mx::array dense(
        reinterpret_cast<const float*>(tensor.bytes.data()),
        {static_cast<int>(tensor.rows()), static_cast<int>(tensor.columns())},
        mx::float32);
    const auto triple = mx::quantize(
        dense,
        static_cast<int>(layout.at("group_size").as_int64()),
        static_cast<int>(layout.at("bits").as_int64()),
        mode);
    out.tensors.push_back(tensor_of(path + ".weight", TensorType::u32, triple[0]));
    const bool affine = mode == "affine";
    out.tensors.push_back(tensor_of(
        path + ".scales",
        affine ? TensorType::f16 : TensorType::u8,
        affine ? mx::astype(triple[1], mx::float16) : triple[1]));
    if (affine) {
      out.tensors.push_back(
          tensor_of(path + ".biases", TensorType::f16, mx::astype(triple[2], mx::float16)));
    }
  }
  return out;
}

std::unique_ptr<Decoder> make_quantized(const Quantized& model, bool batch_invariant) {
  LoadOptions options;
  options.pool = std::make_shared<ThreadPool>(2);
  options.batch_invariant = batch_invariant;
  Weights weights(model.tensors, "small decoder", model.config);
  auto decoder = make_native_decoder(model.spec, weights, options);
  weights.check_all_taken();
  return decoder;
}

TEST(NativeDecoder, QuantizedTriplesMatchTheirDequantizedNumbers) {
  const Quantized model = quantized();
  const auto native = make_quantized(model, false);
  EXPECT_EQ(native->notes(), (std::vector<std::string>{"1 mxfp4 matrix held as bf16"}));
  LoadOptions options;
  options.pool = std::make_shared<ThreadPool>(2);
  Weights same(model.tensors, "small decoder", model.config);
  options.dequantize = true;
  options.dtype = mx::float32;
  const auto composed = make_composed_decoder(model.spec, same, options);
  const auto ids = some_tokens(40, model.spec.vocab_size, 8);
  for (const size_t chunk : {1u, 40u}) {
    const auto a = native->make_cache(f32_cache());
    const auto b = composed->make_cache(f32_cache());
    for (size_t i = 0; i < ids.size(); i += chunk) {
      const auto got = feed(*native, *a, part(ids, i, chunk));
      const auto want = feed(*composed, *b, part(ids, i, chunk));
      double error = 0;
      double size = 0;
      for (size_t j = 0; j < got.size(); ++j) {
        error += std::pow(got[j] - want[j], 2);
        size += std::pow(want[j], 2);
      }
      // Activations are rounded to 8 bits in front of every matrix.
      EXPECT_LT(std::sqrt(error / size), 0.03) << "chunk " << chunk << " at " << i;
    }
  }
}

std::unique_ptr<Decoder> make_invariant(const DecoderSpec& spec) {
  LoadOptions options;
  options.pool = std::make_shared<ThreadPool>(2);
  options.batch_invariant = true;
  Weights weights(random_tensors(spec), "small decoder", {});
  return make_native_decoder(spec, weights, options);
}

// Neither the cuts of a prompt nor whoever is computed beside it: to the bit.
void check_batch_invariance(
    Decoder& decoder, int vocab, const CacheOptions& kind, const std::vector<size_t>& chunks) {
  const auto ids = some_tokens(static_cast<int>(chunks.back()) + 1, vocab, 5);
  const auto whole = decoder.make_cache(kind);
  const std::vector<float> want = feed(decoder, *whole, ids);
  for (const size_t chunk : chunks) {
    const auto cache = decoder.make_cache(kind);
    const auto other = decoder.make_cache(kind);
    feed(decoder, *other, some_tokens(30, vocab, 6));
    std::vector<float> got;
    for (size_t i = 0; i < ids.size(); i += chunk) {
      std::vector<int32_t> both = some_tokens(1 + static_cast<int>(i % 40), vocab, 7);
      const auto beside = static_cast<int>(both.size());
      const std::vector<int32_t> mine = part(ids, i, std::min(chunk, ids.size() - i));
      both.insert(both.end(), mine.begin(), mine.end());
      std::vector<int> rows = all_rows(mine.size());
      for (int& row : rows) {
        row += beside;
      }
      const auto some = floats_of(decoder.forward(
          {token_array(both),
           {{other.get(), beside}, {cache.get(), static_cast<int>(mine.size())}},
           rows}));
      got.insert(got.end(), some.begin(), some.end());
    }
    EXPECT_EQ(got, want) << "chunks of " << chunk;
    const auto alone = decoder.make_cache(kind);
    got.clear();
    for (size_t i = 0; i < ids.size(); i += chunk) {
      const auto some = feed(decoder, *alone, part(ids, i, std::min(chunk, ids.size() - i)));
      got.insert(got.end(), some.begin(), some.end());
    }
    EXPECT_EQ(got, want) << "alone, chunks of " << chunk;
  }
}

TEST(NativeDecoder, BatchInvariantOnesTakeNoNoticeOfCutsAndCompany) {
  const Quantized model = quantized();
  const auto packed = make_quantized(model, true);
  const bool slow = std::getenv("QUINCE_EMULATED") != nullptr;
  const std::vector<size_t> chunks =
      slow ? std::vector<size_t>{1, 9, 64} : std::vector<size_t>{1, 3, 8, 9, 16, 37, 64, 149};
  const std::vector<KvFormat> formats =
      slow ? std::vector{KvFormat::q8} : std::vector{KvFormat::f32, KvFormat::f16, KvFormat::q8};
  for (const KvFormat format : formats) {
    SCOPED_TRACE(static_cast<int>(format));
    CacheOptions kind;
    kind.keys = kind.values = format;
    check_batch_invariance(*packed, model.spec.vocab_size, kind, chunks);
    for (const NamedSpec& it : specs()) {
      SCOPED_TRACE(it.name);
      check_batch_invariance(*make_invariant(it.spec), it.spec.vocab_size, kind, chunks);
    }
    // Windows that begin anywhere in what attention takes at once.
    DecoderSpec windowed = plain_spec();
    windowed.layers = {{0, 300}, {0, 0}, {0, 70}};
    check_batch_invariance(
        *make_invariant(windowed), windowed.vocab_size, kind, {29, 64, 100, 333, 699});
  }
}

TEST(NativeDecoder, ProgressRisesToOne) {
  const DecoderSpec spec = plain_spec();
  LoadOptions options;
  options.pool = std::make_shared<ThreadPool>(1);
  std::vector<double> seen;
  options.progress = [&](double share) { seen.push_back(share); };
  Weights weights(random_tensors(spec), "small decoder", {});
  const auto decoder = make_native_decoder(spec, weights, options);
  ASSERT_GE(seen.size(), 4u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.front(), 0.0);
  EXPECT_EQ(seen.back(), 1.0);
  EXPECT_TRUE(decoder->notes().empty());
  EXPECT_GT(decoder->weight_bytes(), 96u * 130 * 4);
}

}  // namespace
}  // namespace quince::test
