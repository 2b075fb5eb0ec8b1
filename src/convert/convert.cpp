#include "convert/convert.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "convert/encode.h"
#include "convert/plan.h"
#include "convert/side_files.h"
#include "weights/safetensors_writer.h"

namespace quince {

namespace fs = std::filesystem;

namespace {

// With --force the old directory stays until the new one is complete.
class Destination {
 public:
  Destination(const ModelFiles& files, const fs::path& out, bool force) : out_(normal(out)) {
    std::error_code ignored;
    bool exists = fs::exists(fs::symlink_status(out_, ignored));
    bool empty = fs::is_directory(out_, ignored) && fs::is_empty(out_, ignored);
    if (!exists || empty) {
      writing_ = out_;
      return;
    }
    if (holds(out_, files.path)) {
      throw UserError(
          "{}: is or holds the model that is being read; choose another name", out.string());
    }
    if (!force) {
      throw UserError(
          "{}: exists already; choose another name, or --force to replace it", out.string());
    }
    if (!fs::exists(out_ / "config.json", ignored)) {
      throw UserError(
          "{}: is not a model directory (no config.json), so --force does not replace it",
          out.string());
    }
    writing_ = beside("new");
    fs::remove_all(writing_, ignored);  // of one that was killed at the last moment
  }

  const fs::path& writing() const {
    return writing_;
  }

  // The new directory is complete: puts it into the place of the old one.
  void settle() {
    if (writing_ == out_) {
      return;
    }
    fs::path old = beside("old");
    std::error_code error;
    fs::remove_all(old, error);
    fs::rename(out_, old);
    fs::rename(writing_, out_, error);
    if (error) {
      fs::rename(old, out_);
      fs::remove_all(writing_);
      throw UserError("{}: cannot replace it: {}", out_.string(), error.message());
    }
    fs::remove_all(old, error);  // what cannot be removed stays beside, hidden
  }

 private:
  // Whether path is folder or lies in it, itself or what it links to.
  static bool holds(const fs::path& folder, const fs::path& path) {
    std::error_code ignored;
    for (fs::path at : {fs::absolute(path), fs::weakly_canonical(path, ignored)}) {
      for (; at.has_relative_path(); at = at.parent_path()) {
        if (fs::equivalent(at, folder, ignored)) {
          return true;
        }
      }
    }
    return false;
  }

  static fs::path normal(const fs::path& path) {
    if (path.empty()) {
      throw UserError("OUT '': the name is empty");
    }
    fs::path clean = fs::absolute(path).lexically_normal();
    return clean.has_filename() ? clean : clean.parent_path();
  }

  fs::path beside(const char* word) const {
    return out_.parent_path() / fmt::format(".{}.{}", out_.filename().string(), word);
  }

  fs::path out_;
  fs::path writing_;
};

// Hands the bytes of a job's outputs to the writer, one output after another.
class OutputCursor {
 public:
  OutputCursor(SafetensorsWriter& writer, const std::vector<OutputTensor>& outputs)
      : writer_(writer), outputs_(outputs) {}

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const OutputTensor& output = outputs_.at(index_);
      size_t room = static_cast<size_t>(output.bytes() - offset_);
      auto part = bytes.first(std::min(room, bytes.size()));
      writer_.write(output.name, part, offset_);
      offset_ += part.size();
      bytes = bytes.subspan(part.size());
      if (offset_ == output.bytes()) {
        index_++;
        offset_ = 0;
      }
    }
  }

 private:
  SafetensorsWriter& writer_;
  const std::vector<OutputTensor>& outputs_;
  size_t index_ = 0;
  uint64_t offset_ = 0;
};

void encode_all(
    const ConvertPlan& plan,
    SafetensorsWriter& writer,
    ThreadPool& pool,
    const ConvertHooks& hooks) {
  double total = 0;
  for (const ConvertJob& job : plan.jobs) {
    total += static_cast<double>(job.weight.bytes.size());
  }
  double done = 0;
  for (const ConvertJob& job : plan.jobs) {
    double size = static_cast<double>(job.weight.bytes.size());
    OutputCursor cursor(writer, job.outputs);
    auto step = [&](double share) {
      if (hooks.check) {
        hooks.check();
      }
      if (hooks.progress) {
        hooks.progress(total > 0 ? (done + share * size) / total : 1, job.weight.name);
      }
    };
    step(0);
    encode(job, pool, [&](std::span<const std::byte> bytes) { cursor.write(bytes); }, step);
    done += size;
  }
}

}  // namespace

ConvertResult convert(
    const ModelFiles& files, const ConvertOptions& options, const ConvertHooks& hooks) {
  ConvertPlan plan = plan_conversion(files, options.dtype, options.policy);
  Destination destination(files, options.out, options.force);
  SafetensorsWriterOptions writing;
  writing.max_shard_bytes = options.shard_bytes;
  writing.total_parameters = static_cast<uint64_t>(plan.parameters);
  SafetensorsWriter writer(destination.writing(), writing);
  for (const ConvertJob& job : plan.jobs) {
    for (const OutputTensor& output : job.outputs) {
      writer.declare(output.name, output.type, output.shape);
    }
  }
  writer.start();
  write_side_files(files, plan, [&](std::string_view name, std::string_view text) {
    writer.add_file(name, text);
  });
  encode_all(plan, writer, *options.pool, hooks);
  ConvertResult result;
  result.parameters = plan.parameters;
  result.bytes = plan.bytes;
  result.shards = writer.shards();
  result.lines = std::move(plan.lines);
  result.exceptions = std::move(plan.exceptions);
  writer.commit();
  destination.settle();
  return result;
}

}  // namespace quince
