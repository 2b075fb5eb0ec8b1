#include "nn/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "base/error.h"

namespace quince {
namespace {

namespace json = boost::json;

// Reads numbers of the scaling object, with errors that name source, key and value.
class Parameters {
 public:
  Parameters(const json::object& object, const std::string& source)
      : object_(object), source_(source) {}

  std::optional<double> find(std::string_view key) const {
    const json::value* value = object_.if_contains(key);
    if (!value || value->is_null()) {
      return std::nullopt;
    }
    if (!value->is_number() || !std::isfinite(value->to_number<double>())) {
      throw UserError(
          "{}: rope \"{}\" is {}, want a number", source_, key, json::serialize(*value));
    }
    return value->to_number<double>();
  }

  // A number above `least`.
  double above(std::string_view key, double least, std::optional<double> otherwise = {}) const {
    const std::optional<double> value = find(key);
    if (!value && !otherwise) {
      throw UserError("{}: rope \"{}\" is missing", source_, key);
    }
    const double number = value ? *value : *otherwise;
    if (number <= least) {
      throw UserError("{}: rope \"{}\" is {}, want more than {}", source_, key, number, least);
    }
    return number;
  }

  bool flag(std::string_view key, bool otherwise) const {
    const json::value* value = object_.if_contains(key);
    if (!value || value->is_null()) {
      return otherwise;
    }
    if (!value->is_bool()) {
      throw UserError(
          "{}: rope \"{}\" is {}, want true or false", source_, key, json::serialize(*value));
    }
    return value->get_bool();
  }

  std::string kind() const {
    for (const char* key : {"rope_type", "type"}) {
      const json::value* value = object_.if_contains(key);
      if (value && value->is_string()) {
        return value->get_string().c_str();
      }
      if (value && !value->is_null()) {
        throw UserError(
            "{}: rope \"{}\" is {}, want a string", source_, key, json::serialize(*value));
      }
    }
    return "default";
  }

 private:
  const json::object& object_;
  const std::string& source_;
};

std::vector<double> exact_inv_freq(double base, int dims) {
  std::vector<double> out(static_cast<size_t>(dims / 2));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = std::pow(base, -2.0 * static_cast<double>(i) / dims);
  }
  return out;
}

std::vector<float> to_float(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

// Wavelengths shorter than context / high_freq_factor stay, longer than context / low_freq_factor
// are stretched by `factor`, those between are blended.
void scale_llama3(
    RopeSpec& rope, const RopeConfig& config, const Parameters& parameters, double theta) {
  const double factor = parameters.above("factor", 0.0);
  const double low = parameters.above("low_freq_factor", 0.0, 1.0);
  const double high = parameters.above("high_freq_factor", 0.0, 4.0);
  const double context =
      parameters.above("original_max_position_embeddings", 0.0, config.max_positions);
  if (high <= low) {
    throw UserError(
        "{}: rope \"high_freq_factor\" is {}, want more than \"low_freq_factor\", {}",
        config.source,
        high,
        low);
  }
  std::vector<double> freqs = exact_inv_freq(theta, rope.dims);
  for (double& freq : freqs) {
    const double wavelength = 2.0 * std::numbers::pi / freq;
    const double blend = std::clamp((context / wavelength - low) / (high - low), 0.0, 1.0);
    freq = (1.0 - blend) * freq / factor + blend * freq;
  }
  rope.inv_freq = to_float(freqs);
}

// What GGUF files of llama-like models carry in place of a formula: a divisor for each frequency.
void divide_by_factors(RopeSpec& rope, const RopeConfig& config) {
  const json::value* factors = config.scaling->if_contains("factors");
  if (!factors || !factors->is_array() || factors->get_array().size() != rope.inv_freq.size()) {
    throw UserError(
        "{}: rope \"factors\" must be a list of {} numbers, one for each rotated pair",
        config.source,
        rope.inv_freq.size());
  }
  for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
    const json::value& factor = factors->get_array()[i];
    if (!factor.is_number() || !(factor.to_number<double>() > 0.0)) {
      throw UserError(
          "{}: rope factor {} is {}, want a number above 0",
          config.source,
          i,
          json::serialize(factor));
    }
    rope.inv_freq[i] = static_cast<float>(rope.inv_freq[i] / factor.to_number<double>());
  }
}

double yarn_scale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

float yarn_attention_factor(const Parameters& parameters, double factor) {
  if (const auto given = parameters.find("attention_factor")) {
    return static_cast<float>(*given);
  }
  const double mscale = parameters.find("mscale").value_or(0.0);
  const double all_dim = parameters.find("mscale_all_dim").value_or(0.0);
  if (mscale != 0.0 && all_dim != 0.0) {
    return static_cast<float>(yarn_scale(factor, mscale) / yarn_scale(factor, all_dim));
  }
  return static_cast<float>(yarn_scale(factor, 1.0));
}

// Dimensions that turn more than beta_fast times within the original context stay, fewer than
// beta_slow times are interpolated, a linear ramp between.
void scale_yarn(
    RopeSpec& rope, const RopeConfig& config, const Parameters& parameters, double theta) {
  const double context =
      parameters.above("original_max_position_embeddings", 0.0, config.max_positions);
  const double factor = parameters.above("factor", 0.0, config.max_positions / context);
  const auto dim_that_turns = [&](double times) {
    return rope.dims * std::log(context / (times * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(theta));
  };
  double low = dim_that_turns(parameters.above("beta_fast", 0.0, 32.0));
  double high = dim_that_turns(parameters.above("beta_slow", 0.0, 1.0));
  if (parameters.flag("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.dims - 1.0);
  if (low == high) {
    high += 0.001;
  }
  std::vector<double> freqs = exact_inv_freq(theta, rope.dims);
  for (size_t i = 0; i < freqs.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    freqs[i] = freqs[i] / factor * ramp + freqs[i] * (1.0 - ramp);
  }
  rope.inv_freq = to_float(freqs);
  rope.attention_factor = yarn_attention_factor(parameters, factor);
}

}  // namespace

std::vector<float> plain_inv_freq(double base, int dims) {
  return to_float(exact_inv_freq(base, dims));
}

RopeSpec make_rope(const RopeConfig& config) {
  static const json::object kPlain;
  const Parameters parameters(config.scaling ? *config.scaling : kPlain, config.source);
  const double theta = parameters.above("rope_theta", 0.0, config.theta);
  const std::string kind = parameters.kind();
  RopeSpec rope;
  rope.dims = config.dims;
  rope.inv_freq = plain_inv_freq(theta, config.dims);
  if (kind == "default") {
    rope.plain_base = static_cast<float>(theta);
  } else if (kind == "linear") {
    const double factor = parameters.above("factor", 0.0);
    std::vector<double> freqs = exact_inv_freq(theta, rope.dims);
    for (double& freq : freqs) {
      freq /= factor;
    }
    rope.inv_freq = to_float(freqs);
  } else if (kind == "dynamic") {
    rope.dynamic_factor = static_cast<float>(parameters.above("factor", 0.0));
    rope.original_length = config.max_positions;
    rope.plain_base = static_cast<float>(theta);
  } else if (kind == "llama3") {
    scale_llama3(rope, config, parameters, theta);
  } else if (kind == "yarn") {
    scale_yarn(rope, config, parameters, theta);
  } else if (kind == "rope_freqs") {
    divide_by_factors(rope, config);
  } else {
    throw UserError(
        "{}: rope_type \"{}\" is not known, want default, linear, dynamic, llama3 or yarn",
        config.source,
        kind);
  }
  return rope;
}

std::vector<float> inv_freq_at(const RopeSpec& rope, int64_t length) {
  if (rope.dynamic_factor == 0.0f || length <= rope.original_length) {
    return rope.inv_freq;
  }
  const double factor = rope.dynamic_factor;
  const double stretch =
      factor * static_cast<double>(length) / rope.original_length - (factor - 1.0);
  const double exponent = static_cast<double>(rope.dims) / (rope.dims - 2);
  return plain_inv_freq(rope.plain_base * std::pow(stretch, exponent), rope.dims);
}

}  // namespace quince
