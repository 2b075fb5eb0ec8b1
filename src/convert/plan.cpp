#include "convert/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "quant/affine_blocks.h"
#include "quant/quantize.h"
#include "weights/safetensors.h"

namespace quince {

namespace json = boost::json;

namespace {

constexpr std::string_view kWeight = ".weight";

bool is_float(TensorType type) {
  switch (type) {
    case TensorType::f64:
    case TensorType::f32:
    case TensorType::f16:
    case TensorType::bf16:
    case TensorType::f8_e4m3:
    case TensorType::f8_e5m2:
      return true;
    default:
      return info(type).block > 1;  // block formats stand for real numbers
  }
}

TensorType config_dtype(const json::object& config) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const json::value* value = config.if_contains(key);
    if (value == nullptr || !value->is_string()) {
      continue;
    }
    std::string_view text = value->get_string();
    if (text == "float32") {
      return TensorType::f32;
    }
    if (text == "float16") {
      return TensorType::f16;
    }
    if (text == "bfloat16") {
      return TensorType::bf16;
    }
  }
  return TensorType::bf16;
}

// Weights of linear layers and embeddings; mlx-lm quantizes these and nothing else. Norms that a
// GGUF file stores with two dimensions do not occur; router and position tables are matrices like
// others.
bool is_matrix(const TensorView& tensor) {
  return tensor.name.ends_with(kWeight) && tensor.shape.size() == 2 &&
         tensor.name.find("norm") == std::string::npos && is_float(tensor.type);
}

class Planner {
 public:
  Planner(const ModelFiles& files, std::optional<TensorType> dtype, const QuantPolicy& policy)
      : files_(files), policy_(policy) {
    plan_.dtype = dtype.value_or(config_dtype(files.config));
    const json::value* quantized = files.config.if_contains("quantization");
    if (quantized != nullptr && quantized->is_object()) {
      quantization_ = quantized->get_object();
    }
    for (const TensorView& tensor : files.tensors) {
      by_name_[tensor.name] = &tensor;
    }
  }

  ConvertPlan make() {
    std::vector<const TensorView*> order;
    for (const TensorView& tensor : files_.tensors) {
      if (!is_spare(tensor.name) && !is_part_of_triple(tensor.name)) {
        order.push_back(&tensor);
      }
    }
    for (const TensorView* tensor : order) {
      plan_.jobs.push_back(job(*tensor));
      account(plan_.jobs.back());
    }
    write_quantization();
    for (const auto& [line, count] : lines_) {
      plan_.lines.push_back(
          fmt::format("{} {} {}", count, count == 1 ? "tensor" : "tensors", line));
    }
    return std::move(plan_);
  }

 private:
  // Tensors that mlx-lm refuses or that would be stored twice: rotary buffers, and the output head
  // of a model that uses its embedding for it.
  bool is_spare(std::string_view name) const {
    if (name.ends_with("rotary_emb.inv_freq")) {
      return true;
    }
    const json::value* tied = files_.config.if_contains("tie_word_embeddings");
    return tied != nullptr && tied->is_bool() && tied->get_bool() && name.starts_with("lm_head.");
  }

  bool is_triple(std::string_view path) const {
    auto weight = by_name_.find(std::string(path) + ".weight");
    return weight != by_name_.end() && weight->second->type == TensorType::u32 &&
           by_name_.contains(std::string(path) + ".scales");
  }

  bool is_part_of_triple(std::string_view name) const {
    for (std::string_view part : {".scales", ".biases"}) {
      if (name.ends_with(part) && is_triple(name.substr(0, name.size() - part.size()))) {
        return true;
      }
    }
    return false;
  }

  ConvertJob job(const TensorView& tensor) {
    ConvertJob job;
    job.weight = tensor;
    job.dtype = plan_.dtype;
    job.path = tensor.name.ends_with(kWeight)
                   ? tensor.name.substr(0, tensor.name.size() - kWeight.size())
                   : tensor.name;
    if (tensor.shape.size() == 2) {
      job.rows = tensor.rows();
      job.columns = tensor.columns();
    }
    if (tensor.name.ends_with(kWeight) && is_triple(job.path)) {
      matrix(job, triple_info(job));
    } else if (is_matrix(tensor)) {
      matrix(job, block_info(job));
    } else {
      plain(job);
    }
    return job;
  }

  MatrixInfo triple_info(ConvertJob& job) {
    const TensorView& words = job.weight;
    auto layout = mlx_layout(quantization_, job.path, files_.path.string());
    const TensorView& scales = *by_name_.at(job.path + ".scales");
    if (!layout || words.shape.size() != 2 || scales.shape.size() != 2) {
      throw UserError(
          "{}: {} is packed, but config.json does not say how (\"quantization\")",
          files_.path.string(),
          words.name);
    }
    job.source_layout = layout;
    job.columns = words.columns() * 32 / layout->bits;
    job.scales = scales;
    auto biases = by_name_.find(job.path + ".biases");
    if (biases != by_name_.end()) {
      job.biases = *biases->second;
    }
    std::vector<int64_t> want{job.rows, job.columns / layout->group};
    if (words.columns() * 32 % layout->bits != 0 || job.columns % layout->group != 0 ||
        scales.shape != want || (layout->mode == "affine") != job.biases.has_value() ||
        (job.biases && job.biases->shape != want)) {
      throw UserError(
          "{}: {} and its scales do not have the shapes of {} (scales [{}])",
          files_.path.string(),
          words.name,
          describe(*layout),
          fmt::join(scales.shape, ", "));
    }
    return {job.path, job.rows, job.columns, words.type, layout, layout};
  }

  MatrixInfo block_info(const ConvertJob& job) const {
    MatrixInfo matrix{job.path, job.rows, job.columns, job.weight.type, {}, {}};
    if (int bits = affine_bits(job.weight.type); bits > 0 && job.columns % kAffineGroup == 0) {
      matrix.same_codes = MlxLayout{bits, kAffineGroup, "affine"};
    }
    return matrix;
  }

  void matrix(ConvertJob& job, const MatrixInfo& matrix) {
    Decision decision = policy_(matrix);
    job.layout = decision.layout;
    job.exception = decision.exception;
    if (!job.layout) {
      plain(job);
      return;
    }
    bool same = matrix.same_codes && *matrix.same_codes == *job.layout;
    job.kind = !same               ? ConvertJob::Kind::quantize
               : job.source_layout ? ConvertJob::Kind::triple
                                   : ConvertJob::Kind::codes;
    // The modes with 8-bit scales (mxfp4, ...) have a fixed scale type.
    bool affine = job.layout->mode == "affine";
    TensorType scale_type = affine ? job.dtype : TensorType::u8;
    std::vector<int64_t> groups{job.rows, job.columns / job.layout->group};
    job.outputs.push_back(
        {job.path + ".weight", TensorType::u32, {job.rows, job.columns * job.layout->bits / 32}});
    job.outputs.push_back({job.path + ".scales", scale_type, groups});
    if (affine) {
      job.outputs.push_back({job.path + ".biases", scale_type, groups});
    }
  }

  void plain(ConvertJob& job) {
    const TensorView& tensor = job.weight;
    std::vector<int64_t> shape = tensor.shape;
    if (job.source_layout) {
      shape.back() = job.columns;
    }
    bool numbers = job.source_layout || is_float(tensor.type);
    TensorType type = numbers ? job.dtype : tensor.type;
    bool same = type == tensor.type && tensor.row_order.empty() && tensor.add == 0.0f;
    job.kind = same || !numbers ? ConvertJob::Kind::raw : ConvertJob::Kind::cast;
    job.outputs.push_back({tensor.name, type, shape});
  }

  void account(const ConvertJob& job) {
    int64_t elements = job.source_layout ? job.rows * job.columns : job.weight.size();
    plan_.parameters += elements;
    for (const OutputTensor& output : job.outputs) {
      plan_.bytes += output.bytes();
    }
    std::string from =
        job.source_layout ? describe(*job.source_layout) : std::string(info(job.weight.type).name);
    std::string to =
        job.layout ? describe(*job.layout) : std::string(info(job.outputs.front().type).name);
    std::string how;
    switch (job.kind) {
      case ConvertJob::Kind::raw:
        how = "kept as they are";
        break;
      case ConvertJob::Kind::triple:
        how = job.scales->type == job.outputs[1].type
                  ? "kept as they are"
                  : fmt::format("kept, scales rounded to {}", info(job.dtype).name);
        break;
      case ConvertJob::Kind::codes:
        how = keeps_scales(job.weight.type, job.dtype)
                  ? fmt::format("kept exactly as {}", to)
                  : fmt::format("kept as {}, scales rounded to {}", to, info(job.dtype).name);
        break;
      case ConvertJob::Kind::cast:
        how = "written as " + to;
        break;
      case ConvertJob::Kind::quantize:
        how = "quantized to " + to;
        break;
    }
    lines_[fmt::format("{}: {}", from, how)]++;
    if (!job.exception.empty()) {
      plan_.exceptions.push_back(fmt::format("{}: {}", job.path, job.exception));
    }
  }

  // Scales of the simple block formats are f16 numbers; those of K-quants are products of an f16
  // number and a 6-bit one, which f32 holds and f16 does not.
  static bool keeps_scales(TensorType type, TensorType dtype) {
    bool two_level = type == TensorType::q4_k || type == TensorType::q5_k;
    return dtype == TensorType::f32 || (dtype == TensorType::f16 && !two_level);
  }

  void write_quantization() {
    std::map<std::string, int64_t> sizes;  // by layout, in parameters
    std::map<std::string, MlxLayout> layouts;
    for (const ConvertJob& job : plan_.jobs) {
      if (job.layout) {
        sizes[describe(*job.layout)] += job.rows * job.columns;
        layouts[describe(*job.layout)] = *job.layout;
      }
    }
    if (sizes.empty()) {
      return;
    }
    auto commonest = std::max_element(sizes.begin(), sizes.end(), [](const auto& a, const auto& b) {
      return a.second < b.second;
    });
    const MlxLayout& usual = layouts[commonest->first];
    plan_.quantization = layout_json(usual);
    for (const ConvertJob& job : plan_.jobs) {
      if (job.layout && !(*job.layout == usual)) {
        plan_.quantization[job.path] = layout_json(*job.layout);
      } else if (!job.layout && is_matrix(job.weight)) {
        plan_.quantization[job.path] = false;
      }
    }
  }

  static json::object layout_json(const MlxLayout& layout) {
    return {{"group_size", layout.group}, {"bits", layout.bits}, {"mode", layout.mode}};
  }

  const ModelFiles& files_;
  const QuantPolicy& policy_;
  json::object quantization_;
  std::map<std::string, const TensorView*, std::less<>> by_name_;
  std::map<std::string, int> lines_;
  ConvertPlan plan_;
};

}  // namespace

uint64_t OutputTensor::bytes() const {
  uint64_t elements = 1;
  for (int64_t size : shape) {
    elements *= static_cast<uint64_t>(size);
  }
  return elements * static_cast<uint64_t>(info(type).bytes);
}

ConvertPlan plan_conversion(
    const ModelFiles& files, std::optional<TensorType> dtype, const QuantPolicy& policy) {
  return Planner(files, dtype, policy).make();
}

}  // namespace quince
