#include "weights/safetensors_writer.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "weights/safetensors.h"

namespace quince {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

[[noreturn]] void fail(const fs::path& path, std::string_view what) {
  const int error = errno;
  throw UserError(
      "{}: cannot {}: {}{}",
      path.string(),
      what,
      std::strerror(error),
      error == ENOSPC ? " (free some space or choose another place)" : "");
}

void write_all(int fd, const char* data, size_t size, uint64_t offset, const fs::path& path) {
  while (size > 0) {
    const ssize_t n = ::pwrite(fd, data, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      fail(path, "write");
    }
    data += n;
    size -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
}

void check_plain_name(std::string_view name) {
  if (name.empty() || name.find('/') != std::string_view::npos || name.starts_with('.')) {
    throw std::invalid_argument(fmt::format("[SafetensorsWriter] bad file name \"{}\"", name));
  }
}

}  // namespace

struct SafetensorsWriter::Shard {
  fs::path path;
  std::string name;
  std::vector<Tensor*> tensors;
  uint64_t header_bytes = 0;  // with its length field
  uint64_t data_bytes = 0;
  int fd = -1;

  ~Shard() {
    if (fd >= 0) {
      ::close(fd);
    }
  }
};

struct SafetensorsWriter::Tensor {
  std::string name;
  TensorType type;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // in its shard's data
  Shard* shard = nullptr;
  std::atomic<uint64_t> written{0};
};

SafetensorsWriter::SafetensorsWriter(fs::path directory, SafetensorsWriterOptions options)
    : directory_(std::move(directory)), options_(std::move(options)) {
  if (!directory_.has_filename()) {
    directory_ = directory_.parent_path();  // "out/" means "out"
  }
  std::error_code ec;
  const auto status = fs::symlink_status(directory_, ec);
  if (fs::exists(status) && !(fs::is_directory(status) && fs::is_empty(directory_, ec))) {
    throw UserError("{}: exists already: remove it or choose another name", directory_.string());
  }
  working_.emplace(directory_);
}

// Closes the files before their folder goes.
SafetensorsWriter::~SafetensorsWriter() {
  shards_.clear();
}

void SafetensorsWriter::declare(
    std::string_view name, TensorType type, std::vector<int64_t> shape) {
  assert(!started_);
  const auto bytes = tensor_bytes(type, shape);
  if (!bytes || !safetensors_dtype(type)) {
    throw std::invalid_argument(fmt::format(
        "[SafetensorsWriter] {} of type {} and shape {} cannot be written",
        name,
        info(type).name,
        shape_text(shape)));
  }
  auto tensor = std::make_unique<Tensor>();
  tensor->name = name;
  tensor->type = type;
  tensor->shape = std::move(shape);
  tensor->bytes = *bytes;
  if (!by_name_.emplace(tensor->name, tensor.get()).second) {
    throw std::invalid_argument(fmt::format("[SafetensorsWriter] {} is declared twice", name));
  }
  tensors_.push_back(std::move(tensor));
}

void SafetensorsWriter::lay_out() {
  for (const auto& tensor : tensors_) {
    if (shards_.empty() ||
        (shards_.back()->data_bytes > 0 &&
         shards_.back()->data_bytes + tensor->bytes > options_.max_shard_bytes)) {
      shards_.push_back(std::make_unique<Shard>());
    }
    Shard& shard = *shards_.back();
    shard.tensors.push_back(tensor.get());
    shard.data_bytes += tensor->bytes;
    tensor->shard = &shard;
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = *shards_[i];
    shard.name = shards_.size() == 1
                     ? "model.safetensors"
                     : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards_.size());
    shard.path = working_->path() / shard.name;
    // Wide elements first, so that all data are aligned to their size.
    std::stable_sort(shard.tensors.begin(), shard.tensors.end(), [](auto* a, auto* b) {
      return info(a->type).bytes > info(b->type).bytes;
    });
    uint64_t at = 0;
    for (Tensor* tensor : shard.tensors) {
      tensor->offset = at;
      at += tensor->bytes;
    }
  }
}

void SafetensorsWriter::start() {
  assert(!started_);
  started_ = true;
  lay_out();
  struct statvfs disk{};
  if (::statvfs(working_->path().c_str(), &disk) == 0) {
    const uint64_t available = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
    if (available < total_bytes()) {
      throw UserError(
          "{}: {} bytes are needed, the disk has {} left (free some space or choose another place)",
          directory_.string(),
          total_bytes(),
          available);
    }
  }
  for (const auto& shard : shards_) {
    json::object header;
    if (!options_.metadata.empty()) {
      header["__metadata__"] = options_.metadata;
    }
    for (const Tensor* tensor : shard->tensors) {
      header[tensor->name] = json::object{
          {"dtype", *safetensors_dtype(tensor->type)},
          {"shape", json::array(tensor->shape.begin(), tensor->shape.end())},
          {"data_offsets", json::array{tensor->offset, tensor->offset + tensor->bytes}}};
    }
    std::string text = json::serialize(header);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    shard->header_bytes = sizeof(length) + length;
    shard->fd = ::open(shard->path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (shard->fd < 0) {
      fail(shard->path, "create it");
    }
    if (::ftruncate(shard->fd, static_cast<off_t>(shard->header_bytes + shard->data_bytes)) != 0) {
      fail(shard->path, "give it its size");
    }
    write_all(shard->fd, reinterpret_cast<const char*>(&length), sizeof(length), 0, shard->path);
    write_all(shard->fd, text.data(), text.size(), sizeof(length), shard->path);
  }
}

void SafetensorsWriter::write(
    std::string_view name, std::span<const std::byte> bytes, uint64_t offset) {
  assert(started_ && !committed_);
  const auto at = by_name_.find(name);
  if (at == by_name_.end()) {
    throw std::invalid_argument(fmt::format("[SafetensorsWriter] {} was not declared", name));
  }
  Tensor& tensor = *at->second;
  if (offset > tensor.bytes || bytes.size() > tensor.bytes - offset) {
    throw std::invalid_argument(fmt::format(
        "[SafetensorsWriter] {}: bytes {} to {} of {}",
        name,
        offset,
        offset + bytes.size(),
        tensor.bytes));
  }
  write_all(
      tensor.shard->fd,
      reinterpret_cast<const char*>(bytes.data()),
      bytes.size(),
      tensor.shard->header_bytes + tensor.offset + offset,
      tensor.shard->path);
  tensor.written += bytes.size();
}

void SafetensorsWriter::add_file(std::string_view name, std::string_view text) {
  check_plain_name(name);
  const fs::path path = working_->path() / name;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    fail(path, "create it");
  }
  try {
    write_all(fd, text.data(), text.size(), 0, path);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::fsync(fd);
  ::close(fd);
}

void SafetensorsWriter::copy_file(const fs::path& from, std::string_view name) {
  check_plain_name(name);
  std::error_code ec;
  // Links of the hub cache are followed: the copy is a plain file.
  fs::copy_file(
      fs::canonical(from, ec), working_->path() / name, fs::copy_options::overwrite_existing, ec);
  if (ec) {
    throw UserError("{}: cannot copy it: {}", from.string(), ec.message());
  }
}

void SafetensorsWriter::write_index() {
  json::object map;
  for (const auto& [name, tensor] : by_name_) {
    map[name] = tensor->shard->name;
  }
  json::object metadata{{"total_size", total_bytes()}};
  if (options_.total_parameters > 0) {
    metadata["total_parameters"] = options_.total_parameters;
  }
  const json::object index{{"metadata", std::move(metadata)}, {"weight_map", std::move(map)}};
  add_file("model.safetensors.index.json", json::serialize(index));
}

void SafetensorsWriter::commit() {
  assert(started_ && !committed_);
  for (const auto& tensor : tensors_) {
    if (tensor->written != tensor->bytes) {
      throw std::logic_error(fmt::format(
          "[SafetensorsWriter] {}: {} of {} bytes were written",
          tensor->name,
          tensor->written.load(),
          tensor->bytes));
    }
  }
  write_index();
  for (const auto& shard : shards_) {
    if (::fsync(shard->fd) != 0) {
      fail(shard->path, "write");
    }
  }
  shards_.clear();
  for (const auto& tensor : tensors_) {
    tensor->shard = nullptr;
  }
  working_->settle();
  committed_ = true;
}

int SafetensorsWriter::shards() const {
  return static_cast<int>(shards_.size());
}

uint64_t SafetensorsWriter::total_bytes() const {
  uint64_t total = 0;
  for (const auto& tensor : tensors_) {
    total += tensor->bytes;
  }
  return total;
}

}  // namespace quince
