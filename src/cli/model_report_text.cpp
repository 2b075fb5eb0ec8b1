// The two faces of a ModelReport. Part of cli/model_report.h.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json_text.h"
#include "cli/generate.h"
#include "cli/model_report.h"

namespace quince::cli {

namespace json = boost::json;

namespace {

std::string count_name(int64_t count) {
  double value = static_cast<double>(count);
  if (value >= 1e9) {
    return fmt::format("{:.2f}B", value / 1e9);
  }
  if (value >= 1e6) {
    return fmt::format("{:.1f}M", value / 1e6);
  }
  return fmt::format("{}", count);
}

std::string shape_name(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Text of a token as one visible line.
std::string visible(const std::string& text) {
  return json::serialize(json::value(text));
}

void line(std::string& out, std::string_view label, std::string_view value) {
  out += fmt::format("{:<18}{}\n", label, value);
}

struct TypeSum {
  int count = 0;
  int64_t elements = 0;
  uint64_t bytes = 0;
};

std::map<std::string, TypeSum> sums_by_type(const ModelReport& report) {
  std::map<std::string, TypeSum> sums;
  for (const TensorRow& row : report.tensors) {
    TypeSum& sum = sums[row.type];
    sum.count++;
    sum.elements += row.elements;
    sum.bytes += row.bytes;
  }
  return sums;
}

double bits(uint64_t bytes, int64_t elements) {
  return elements > 0 ? 8.0 * static_cast<double>(bytes) / static_cast<double>(elements) : 0;
}

void tensor_text(std::string& out, const ModelReport& report, bool all) {
  out += fmt::format("\nTensors ({}):\n", report.tensors.size());
  for (const auto& [type, sum] : sums_by_type(report)) {
    out += fmt::format(
        "  {:<20}{:>5} tensors {:>9} parameters {:>9}  {:.2f} bits each\n",
        type,
        sum.count,
        count_name(sum.elements),
        human_bytes(sum.bytes),
        bits(sum.bytes, sum.elements));
  }
  if (!all) {
    return;
  }
  size_t width = 4;
  for (const TensorRow& row : report.tensors) {
    width = std::max(width, row.name.size());
  }
  out += "\n";
  for (const TensorRow& row : report.tensors) {
    out += fmt::format(
        "  {:<{}}  {:<18} {:<20} {:>10}  {:.2f} bits\n",
        row.name,
        width,
        row.type,
        shape_name(row.shape),
        human_bytes(row.bytes),
        row.bits);
  }
}

void tokenizer_text(std::string& out, const ModelReport& report) {
  auto token = [&](int32_t id) {
    auto text = report.token_texts.find(id);
    return text == report.token_texts.end() ? fmt::format("{}", id)
                                            : fmt::format("{} {}", id, visible(text->second));
  };
  out += "\n";
  line(
      out,
      "tokenizer",
      report.vocabulary > 0 ? fmt::format("{}, {} tokens", report.tokenizer, report.vocabulary)
                            : report.tokenizer);
  if (report.bos) {
    line(
        out,
        "begin token",
        token(*report.bos) + (report.add_bos ? ", added to raw prompts" : ", not added"));
  }
  std::vector<std::string> ends;
  for (int32_t id : report.end_tokens) {
    ends.push_back(token(id));
  }
  line(out, "end tokens", ends.empty() ? "none known" : fmt::format("{}", fmt::join(ends, ", ")));
  if (!report.special_tokens.empty()) {
    constexpr size_t kShown = 12;
    std::vector<std::string> shown;
    for (size_t i = 0; i < std::min(kShown, report.special_tokens.size()); i++) {
      shown.push_back(visible(report.special_tokens[i]));
    }
    std::string more = report.special_tokens.size() > kShown
                           ? fmt::format(" and {} more", report.special_tokens.size() - kShown)
                           : "";
    line(out, "special tokens", fmt::format("{}{}", fmt::join(shown, " "), more));
  }
  std::vector<std::string> templates;
  for (const ChatTemplateSource& source : report.templates) {
    templates.push_back(fmt::format("{} ({} characters)", source.name, source.text.size()));
  }
  line(
      out,
      "chat templates",
      templates.empty() ? "none: prompts are used as they are"
                        : fmt::format("{}", fmt::join(templates, ", ")));
}

std::string sampling_name(const json::object& sampling) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : sampling) {
    // A float of a GGUF file as people write it: 0.6, not 0.6000000238418579.
    parts.push_back(
        value.is_double() ? fmt::format("{} {:.6g}", std::string_view(key), value.get_double())
                          : fmt::format("{} {}", std::string_view(key), compact_json(value)));
  }
  return parts.empty() ? "no recommendation in the files; see quince run --help"
                       : fmt::format("{}", fmt::join(parts, ", "));
}

void memory_text(std::string& out, const ModelReport& report, const TextView& view) {
  out += "\nMemory:\n";
  out += fmt::format(
      "  weights {}, room to compute {}{}\n",
      human_bytes(report.held_bytes),
      human_bytes(report.workspace),
      report.kv_exact ? "" : "; the cache is estimated from the configuration");
  if (report.needs.empty()) {
    out += "  the configuration does not tell the size of the cache\n";
    return;
  }
  for (const NeedRow& need : report.needs) {
    std::string beyond =
        report.context > 0 && need.context > report.context ? " (beyond the trained context)" : "";
    out += fmt::format(
        "  fits in {}: {}, {} at {} ({} cache {}){}\n",
        view.memory_name,
        need.total <= view.memory ? "yes" : "no",
        human_bytes(need.total),
        context_name(need.context),
        name(need.kv),
        human_bytes(need.kv_bytes),
        beyond);
  }
}

}  // namespace

std::string context_name(int64_t tokens) {
  if (tokens >= 1024 && tokens % 1024 == 0) {
    return fmt::format("{}k", tokens / 1024);
  }
  return fmt::format("{}", tokens);
}

std::string to_text(const ModelReport& report, const TextView& view) {
  std::string out;
  line(out, "model", fmt::format("{} ({})", report.model, report.container));
  if (report.path != report.model) {
    line(out, "path", report.path);
  }
  line(out, "architecture", report.architecture);
  if (report.cannot_run) {
    line(out, "runs", "no: " + *report.cannot_run);
  }
  line(out, "parameters", fmt::format("{} ({})", count_name(report.parameters), report.parameters));
  line(
      out,
      "weights",
      fmt::format(
          "{} in the file, {:.2f} bits a parameter",
          human_bytes(report.file_bytes),
          bits(report.file_bytes, report.parameters)));
  line(
      out,
      "context",
      report.context > 0
          ? fmt::format("{} tokens ({})", report.context, context_name(report.context))
          : "unknown");
  for (const auto& [key, value] : report.shape) {
    std::string label(key);
    std::replace(label.begin(), label.end(), '_', ' ');
    line(out, label, compact_json(value));
  }
  tokenizer_text(out, report);
  line(out, "sampling", sampling_name(report.sampling));
  tensor_text(out, report, view.tensors);
  memory_text(out, report, view);
  if (view.metadata) {
    out += "\nMetadata:\n";
    for (const auto& [key, value] : report.metadata) {
      out += fmt::format("  {} = {}\n", std::string_view(key), compact_json(value));
    }
  }
  if (view.templates) {
    for (const ChatTemplateSource& source : report.templates) {
      out += fmt::format("\nChat template {}:\n{}\n", source.name, source.text);
    }
  }
  for (const std::string& note : report.notes) {
    out += fmt::format("\nnote: {}\n", note);
  }
  return out;
}

json::object to_json(const ModelReport& report, uint64_t memory) {
  json::array tensors;
  for (const TensorRow& row : report.tensors) {
    tensors.push_back(
        {{"name", row.name},
         {"type", row.type},
         {"shape", json::value_from(row.shape)},
         {"elements", row.elements},
         {"bytes", row.bytes},
         {"bits", row.bits}});
  }
  json::array templates;
  for (const ChatTemplateSource& source : report.templates) {
    templates.push_back({{"name", source.name}, {"text", source.text}});
  }
  json::array needs;
  for (const NeedRow& need : report.needs) {
    needs.push_back(
        {{"context", need.context},
         {"kv_type", name(need.kv)},
         {"kv_bytes", need.kv_bytes},
         {"total_bytes", need.total},
         {"fits", need.total <= memory}});
  }
  auto token = [&](int32_t id) {
    auto text = report.token_texts.find(id);
    return json::value{{"id", id}, {"text", text == report.token_texts.end() ? "" : text->second}};
  };
  json::array ends;
  for (int32_t id : report.end_tokens) {
    ends.push_back(token(id));
  }
  return {
      {"model", report.model},
      {"path", report.path},
      {"container", report.container},
      {"architecture", report.architecture},
      {"runs", !report.cannot_run.has_value()},
      {"cannot_run", report.cannot_run ? json::value(*report.cannot_run) : json::value(nullptr)},
      {"parameters", report.parameters},
      {"file_bytes", report.file_bytes},
      {"bits_per_parameter", bits(report.file_bytes, report.parameters)},
      {"context", report.context > 0 ? json::value(report.context) : json::value(nullptr)},
      {"shape", report.shape},
      {"tokenizer",
       {{"kind", report.tokenizer},
        {"vocab_size", report.vocabulary},
        {"bos", report.bos ? token(*report.bos) : json::value(nullptr)},
        {"add_bos", report.add_bos},
        {"end_tokens", ends},
        {"special_tokens", json::value_from(report.special_tokens)}}},
      {"chat_templates", templates},
      {"sampling", report.sampling},
      {"tensors", tensors},
      {"memory",
       {{"weights_bytes", report.held_bytes},
        {"workspace_bytes", report.workspace},
        {"limit_bytes", memory},
        {"kv_exact", report.kv_exact},
        {"needs", needs}}},
      {"notes", json::value_from(report.notes)},
      {"metadata", report.metadata},
      {"config", report.config}};
}

}  // namespace quince::cli
