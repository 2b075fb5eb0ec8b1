// Logits of a model over given tokens, and how far two ways of computing them are apart: the mean
// Kullback-Leibler divergence KL(reference || other) in nats, over every position.
//
//   quince_logits write MODEL TOKENS OUT          writes OUT
//   quince_logits kl MODEL TOKENS REFERENCE       computes and compares with a file that `write`
//   made quince_logits compare REFERENCE OTHER         compares two files
//
// TOKENS: text, one sequence of token numbers a line, each run with a fresh cache; --skip leaves
// the first positions of each out. A logits file is "QLOGITS1", int32 vocabulary, int32 0, then f32
// rows. Nothing larger than a chunk is held.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <numeric>
#include <sstream>

#include <fmt/format.h>
#include <mlx/mlx.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "models/model.h"
#include "weights/model_files.h"

namespace quince {
namespace {

namespace mx = mlx::core;

constexpr char kMagic[] = "QLOGITS1";

struct Options {
  std::string model, tokens, file, other;
  std::string kernels = "native";
  std::string dtype;
  bool dequantize = false;
  std::optional<KvFormat> keys;
  std::optional<KvFormat> values;
  int chunk = 128;
  int threads = 0;
  int skip = 0;  // first positions of each sequence that are not counted
};

class RowWriter {
 public:
  RowWriter(const std::string& path, int vocabulary) : out_(path, std::ios::binary) {
    const int32_t sizes[] = {vocabulary, 0};
    out_.write(kMagic, 8);
    out_.write(reinterpret_cast<const char*>(sizes), sizeof(sizes));
  }
  void row(const float* logits, size_t n) {
    out_.write(
        reinterpret_cast<const char*>(logits), static_cast<std::streamsize>(n * sizeof(float)));
    if (!out_) {
      throw UserError("cannot write the logits: is the disk full?");
    }
  }

 private:
  std::ofstream out_;
};

class RowReader {
 public:
  explicit RowReader(const std::string& path) : in_(path, std::ios::binary) {
    char magic[8];
    int32_t sizes[2];
    in_.read(magic, 8);
    in_.read(reinterpret_cast<char*>(sizes), sizeof(sizes));
    if (!in_ || std::memcmp(magic, kMagic, 8) != 0) {
      throw UserError("{}: not a logits file", path);
    }
    row_.resize(static_cast<size_t>(sizes[0]));
  }
  int vocabulary() const {
    return static_cast<int>(row_.size());
  }
  const float* next() {  // null at the end
    in_.read(
        reinterpret_cast<char*>(row_.data()),
        static_cast<std::streamsize>(row_.size() * sizeof(float)));
    return in_ ? row_.data() : nullptr;
  }

 private:
  std::ifstream in_;
  std::vector<float> row_;
};

double log_sum_exp(const float* logits, size_t n) {
  const float most = *std::max_element(logits, logits + n);
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) {
    sum += std::exp(static_cast<double>(logits[i] - most));
  }
  return most + std::log(sum);
}

class Divergence {
 public:
  void add(const float* reference, const float* other, size_t n) {
    const double a = log_sum_exp(reference, n);
    const double b = log_sum_exp(other, n);
    double kl = 0.0;
    for (size_t i = 0; i < n; ++i) {
      const double log_p = reference[i] - a;
      kl += std::exp(log_p) * (log_p - (other[i] - b));
    }
    values_.push_back(kl);
    same_top_ += std::max_element(reference, reference + n) - reference ==
                 std::max_element(other, other + n) - other;
  }
  void print() {
    if (values_.empty()) {
      throw UserError("no rows to compare");
    }
    const auto n = static_cast<double>(values_.size());
    const double mean = std::accumulate(values_.begin(), values_.end(), 0.0) / n;
    double square = 0.0;
    for (const double v : values_) {
      square += (v - mean) * (v - mean);
    }
    std::sort(values_.begin(), values_.end());
    fmt::print(
        "{{\"positions\": {}, \"kl_mean\": {:.6e}, \"kl_mean_error\": {:.1e}, \"kl_median\": "
        "{:.3e}, "
        "\"kl_p99\": {:.3e}, \"kl_max\": {:.3e}, \"same_top\": {:.5f}}}\n",
        values_.size(),
        mean,
        std::sqrt(square / n / n),
        values_[values_.size() / 2],
        values_[values_.size() * 99 / 100],
        values_.back(),
        same_top_ / n);
  }

 private:
  std::vector<double> values_;
  double same_top_ = 0;
};

std::vector<std::vector<int32_t>> read_tokens(const std::string& path) {
  std::ifstream in(path);
  if (!in) {
    throw UserError("{}: cannot be read", path);
  }
  std::vector<std::vector<int32_t>> sequences;
  for (std::string line; std::getline(in, line);) {
    std::istringstream numbers(line);
    std::vector<int32_t> tokens{std::istream_iterator<int32_t>(numbers), {}};
    if (!tokens.empty()) {
      sequences.push_back(std::move(tokens));
    }
  }
  return sequences;
}

std::unique_ptr<Model> load(const Options& options) {
  LoadOptions load;
  load.kernels = options.kernels == "mlx" ? KernelSet::mlx : KernelSet::native;
  load.pool = std::make_shared<ThreadPool>(
      options.threads > 0 ? options.threads : ThreadPool::default_size());
  load.dequantize = options.dequantize;
  if (!options.dtype.empty()) {
    load.dtype = options.dtype == "f32"   ? mx::float32
                 : options.dtype == "f16" ? mx::float16
                                          : mx::bfloat16;
  }
  auto model = load_model(open_model(options.model), load);
  for (const std::string& note : model->info().notes) {
    fmt::print(stderr, "{}\n", note);
  }
  return model;
}

template <typename Row>
void each_row(Model& model, const Options& options, const Row& row) {
  const auto vocabulary = static_cast<size_t>(model.info().vocab_size);
  for (const std::vector<int32_t>& tokens : read_tokens(options.tokens)) {
    CacheOptions cache_options;
    cache_options.keys = options.keys;
    cache_options.values = options.values;
    const auto cache = model.make_cache(cache_options);
    for (size_t i = 0; i < tokens.size(); i += static_cast<size_t>(options.chunk)) {
      const int n =
          static_cast<int>(std::min(tokens.size() - i, static_cast<size_t>(options.chunk)));
      std::vector<int> rows;
      for (int r = 0; r < n; ++r) {
        if (static_cast<int>(i) + r >= options.skip) {
          rows.push_back(r);
        }
      }
      mx::array logits =
          model.forward({mx::array(tokens.data() + i, {n}, mx::int32), {{cache.get(), n}}, rows});
      logits = mx::contiguous(logits);
      logits.eval();
      for (size_t r = 0; r < rows.size(); ++r) {
        row(logits.data<float>() + r * vocabulary, vocabulary);
      }
      fmt::print(stderr, "\r{} tokens", i + static_cast<size_t>(n));
    }
    fmt::print(stderr, "\n");
  }
}

void write(const Options& options) {
  const auto model = load(options);
  RowWriter out(options.file, model->info().vocab_size);
  each_row(*model, options, [&](const float* row, size_t n) { out.row(row, n); });
}

void kl(const Options& options) {
  const auto model = load(options);
  RowReader reference(options.file);
  if (reference.vocabulary() != model->info().vocab_size) {
    throw UserError(
        "{}: rows of {}, the model has {}",
        options.file,
        reference.vocabulary(),
        model->info().vocab_size);
  }
  Divergence divergence;
  each_row(*model, options, [&](const float* row, size_t n) {
    const float* want = reference.next();
    if (!want) {
      throw UserError("{}: fewer rows than tokens", options.file);
    }
    divergence.add(want, row, n);
  });
  divergence.print();
}

void compare(const Options& options) {
  RowReader reference(options.file);
  RowReader other(options.other);
  if (reference.vocabulary() != other.vocabulary()) {
    throw UserError("rows of {} and {}", reference.vocabulary(), other.vocabulary());
  }
  Divergence divergence;
  for (;;) {
    const float* a = reference.next();
    const float* b = other.next();
    if (!a || !b) {
      break;
    }
    divergence.add(a, b, static_cast<size_t>(reference.vocabulary()));
  }
  divergence.print();
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Logits of a model and their divergence");
  app.require_subcommand(1);
  const CLI::CheckedTransformer formats(std::map<std::string, KvFormat>{
      {"f32", KvFormat::f32},
      {"f16", KvFormat::f16},
      {"bf16", KvFormat::bf16},
      {"q8", KvFormat::q8},
      {"q4", KvFormat::q4}});
  const auto add_model = [&](CLI::App* command) {
    command->add_option("model", options.model)->required();
    command->add_option("tokens", options.tokens)->required();
    command->add_option("file", options.file)->required();
    command->add_option("--kernels", options.kernels)->check(CLI::IsMember({"mlx", "native"}));
    command->add_option("--dtype", options.dtype)->check(CLI::IsMember({"f32", "f16", "bf16"}));
    command->add_flag("--dequantize", options.dequantize);
    command->add_option("-k,--cache-type-k", options.keys)->transform(formats);
    command->add_option("-v,--cache-type-v", options.values)->transform(formats);
    command->add_option("--skip", options.skip)->check(CLI::NonNegativeNumber);
    command->add_option("--chunk", options.chunk)->check(CLI::PositiveNumber);
    command->add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  };
  add_model(app.add_subcommand("write"));
  add_model(app.add_subcommand("kl"));
  CLI::App* files = app.add_subcommand("compare");
  files->add_option("reference", options.file)->required();
  files->add_option("other", options.other)->required();
  CLI11_PARSE(app, argc, argv);
  if (app.got_subcommand("write")) {
    write(options);
  } else if (app.got_subcommand("kl")) {
    kl(options);
  } else {
    compare(options);
  }
  return 0;
}

}  // namespace
}  // namespace quince

int main(int argc, char** argv) {
  try {
    return quince::run(argc, argv);
  } catch (const quince::UserError& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
