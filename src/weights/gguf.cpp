#include "weights/gguf.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

#include "base/error.h"
#include "weights/foreign_file.h"
#include "weights/ggml_blocks.h"

static_assert(std::endian::native == std::endian::little, "GGUF and safetensors are read in place");

namespace quince {

namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr int kMaxDimensions = 4;
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kMaxKey = 65535;        // of the specification
constexpr uint64_t kMaxTensorName = 1024;  // the specification says 64; writers are laxer
constexpr uint32_t kMaxAlignment = 1u << 20;

size_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::string:
    case GgufType::array:
      return 0;
  }
  return 0;
}

// ggml's type numbers. Gaps are types that were removed or live only in memory.
struct GgmlType {
  uint32_t number;
  TensorType type;
};
constexpr GgmlType kGgmlTypes[] = {
    {0, TensorType::f32},      {1, TensorType::f16},     {2, TensorType::q4_0},
    {3, TensorType::q4_1},     {6, TensorType::q5_0},    {7, TensorType::q5_1},
    {8, TensorType::q8_0},     {10, TensorType::q2_k},   {11, TensorType::q3_k},
    {12, TensorType::q4_k},    {13, TensorType::q5_k},   {14, TensorType::q6_k},
    {16, TensorType::iq2_xxs}, {17, TensorType::iq2_xs}, {18, TensorType::iq3_xxs},
    {19, TensorType::iq1_s},   {20, TensorType::iq4_nl}, {21, TensorType::iq3_s},
    {22, TensorType::iq2_s},   {23, TensorType::iq4_xs}, {24, TensorType::i8},
    {25, TensorType::i16},     {26, TensorType::i32},    {27, TensorType::i64},
    {28, TensorType::f64},     {29, TensorType::iq1_m},  {30, TensorType::bf16},
    {34, TensorType::tq1_0},   {35, TensorType::tq2_0},  {39, TensorType::mxfp4},
};

std::optional<TensorType> tensor_type(uint32_t number) {
  for (const GgmlType& row : kGgmlTypes) {
    if (row.number == number) {
      return row.type;
    }
  }
  return std::nullopt;
}

std::string_view known_unsupported(uint32_t number) {
  if (number == 4 || number == 5) {
    return " (Q4_2/Q4_3, removed from GGUF long ago)";
  }
  if ((number >= 31 && number <= 33) || (number >= 36 && number <= 38)) {
    return " (a CPU-specific repacked type, removed from GGUF: get the plain Q4_0 or IQ4_NL file)";
  }
  if (number == 9 || number == 15) {
    return " (Q8_1/Q8_K, which exist only in memory)";
  }
  return "";
}

// Walks the file front to back. Never reads past its end: what is missing is told in bytes.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& source)
      : bytes_(bytes), source_(source) {}

  uint64_t at() const {
    return at_;
  }
  uint64_t left() const {
    return bytes_.size() - at_;
  }

  std::string_view foreign_file() const {
    return quince::foreign_file(bytes_);
  }

  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > left()) {
      if (count > std::numeric_limits<uint64_t>::max() - at_) {
        throw UserError("{}: {} would have {} bytes: not a sound GGUF file", source_, what, count);
      }
      throw UserError(
          "{}: cut off or damaged: {} needs {} bytes up to byte {}, the file holds {}",
          source_,
          what,
          count,
          at_ + count,
          bytes_.size());
    }
    const auto part = bytes_.subspan(at_, count);
    at_ += count;
    return part;
  }

  template <typename T>
  T number(std::string_view what) {
    return load_unaligned<T>(take(sizeof(T), what).data());
  }

  std::string_view string(std::string_view what, uint64_t max) {
    const auto length = number<uint64_t>(what);
    if (length > max) {
      throw UserError("{}: {} has {} bytes, the limit is {}", source_, what, length, max);
    }
    const auto text = take(length, what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  GgufType type(std::string_view what) {
    const auto value = number<uint32_t>(what);
    if (value > static_cast<uint32_t>(GgufType::f64)) {
      throw UserError("{}: {} has the unknown value type {}", source_, what, value);
    }
    return static_cast<GgufType>(value);
  }

  GgufValue value(std::string_view what) {
    GgufValue v;
    v.type = type(what);
    if (v.type == GgufType::array) {
      array(v, what, 1);
    } else if (v.type == GgufType::string) {
      const std::string_view text = string(what, std::numeric_limits<uint64_t>::max());
      v.bytes = {reinterpret_cast<const std::byte*>(text.data()), text.size()};
    } else {
      v.bytes = take(scalar_bytes(v.type), what);
    }
    return v;
  }

 private:
  // Fills in element, count and bytes (the encoded elements, of nested arrays with their headers).
  void array(GgufValue& v, std::string_view what, int depth) {
    if (depth > kMaxArrayDepth) {
      throw UserError("{}: {} nests more than {} arrays", source_, what, kMaxArrayDepth);
    }
    v.element = type(what);
    v.count = number<uint64_t>(what);
    const uint64_t begin = at_;
    if (const size_t size = scalar_bytes(v.element)) {
      if (v.count > left() / size) {
        throw UserError(
            "{}: cut off or damaged: {} has {} elements of {} bytes, the file ends after {} more "
            "bytes",
            source_,
            what,
            v.count,
            size,
            left());
      }
      take(v.count * size, what);
    } else {
      // Each string or array takes 8 bytes at least, so the walk ends with the file.
      for (uint64_t i = 0; i < v.count; ++i) {
        if (v.element == GgufType::string) {
          take(number<uint64_t>(what), what);
        } else {
          GgufValue inner;
          array(inner, what, depth + 1);
        }
      }
    }
    v.bytes = bytes_.subspan(begin, at_ - begin);
  }

  std::span<const std::byte> bytes_;
  const std::string& source_;
  uint64_t at_ = 0;
};

uint32_t read_version(Cursor& cursor, const std::string& source) {
  const auto magic = cursor.number<uint32_t>("the magic number");
  if (magic != kMagic) {
    const std::string_view what = cursor.foreign_file();
    throw UserError(
        "{}: not a GGUF file: it {}",
        source,
        what.empty() ? "does not begin with \"GGUF\"" : fmt::format("is {}", what));
  }
  const auto version = cursor.number<uint32_t>("the version");
  if (version != 0 && (version & 0xffff) == 0) {
    throw UserError(
        "{}: a big-endian GGUF file, which is not supported: convert it with gguf-py's "
        "gguf_convert_endian, or get the little-endian file",
        source);
  }
  if (version != 2 && version != 3) {
    throw UserError("{}: GGUF version {} is not supported (2 and 3 are)", source, version);
  }
  return version;
}

struct TensorInfo {
  TensorView view;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

TensorInfo read_tensor_info(Cursor& cursor, const std::string& source, uint64_t number) {
  TensorInfo result;
  const std::string_view name =
      cursor.string(fmt::format("the name of tensor {}", number), kMaxTensorName);
  const std::string what = fmt::format("tensor {}", name);
  result.view.name = name;
  const auto dimensions = cursor.number<uint32_t>(what);
  if (dimensions > kMaxDimensions) {
    throw UserError(
        "{}: {} has {} dimensions, at most {} are allowed",
        source,
        what,
        dimensions,
        kMaxDimensions);
  }
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = cursor.number<uint64_t>(what);
    if (size == 0 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      throw UserError("{}: {}: dimension {} is {}, which cannot be", source, what, i, size);
    }
    result.view.shape.push_back(static_cast<int64_t>(size));
  }
  std::reverse(
      result.view.shape.begin(), result.view.shape.end());  // the file has the innermost first
  const auto type_number = cursor.number<uint32_t>(what);
  const auto type = tensor_type(type_number);
  if (!type) {
    throw UserError(
        "{}: {} has ggml type {}, which is not supported{}",
        source,
        what,
        type_number,
        known_unsupported(type_number));
  }
  result.view.type = *type;
  result.offset = cursor.number<uint64_t>(what);
  const TensorTypeInfo& t = info(*type);
  if (result.view.columns() % t.block != 0) {
    throw UserError(
        "{}: {}: rows of {} elements are no whole number of {} blocks of {}",
        source,
        what,
        result.view.columns(),
        t.name,
        t.block);
  }
  const auto bytes = tensor_bytes(*type, result.view.shape);
  if (!bytes) {
    throw UserError(
        "{}: {}: shape {} has more elements than can be counted",
        source,
        what,
        shape_text(result.view.shape));
  }
  result.bytes = *bytes;
  return result;
}

uint32_t read_alignment(const GgufFile& file) {
  const auto alignment = file.get_int("general.alignment");
  if (!alignment) {
    return 32;
  }
  if (*alignment < 1 || *alignment > kMaxAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    throw UserError(
        "{}: general.alignment is {}, want a power of two up to {}",
        file.source(),
        *alignment,
        kMaxAlignment);
  }
  return static_cast<uint32_t>(*alignment);
}

// Gives every tensor its bytes. data_begin: where offsets count from.
void place_tensors(
    std::vector<TensorInfo>& infos,
    std::span<const std::byte> bytes,
    uint64_t data_begin,
    uint32_t alignment,
    const std::string& source) {
  const uint64_t available = bytes.size() > data_begin ? bytes.size() - data_begin : 0;
  const TensorInfo* outside = nullptr;
  uint64_t needed = 0;
  for (TensorInfo& t : infos) {
    if (t.offset % alignment != 0) {
      throw UserError(
          "{}: tensor {}: offset {} is no multiple of the alignment {}",
          source,
          t.view.name,
          t.offset,
          alignment);
    }
    uint64_t end = 0;
    if (__builtin_add_overflow(t.offset, t.bytes, &end) ||
        end > std::numeric_limits<uint64_t>::max() - data_begin) {
      throw UserError(
          "{}: tensor {}: {} bytes at offset {} lie outside any file",
          source,
          t.view.name,
          t.bytes,
          t.offset);
    }
    needed = std::max(needed, end);
    if (!outside && (t.offset > available || t.bytes > available - t.offset)) {
      outside = &t;
    }
  }
  if (outside) {
    throw UserError(
        "{}: the file is too short: {} bytes are needed, {} are present (tensor {} lies beyond the "
        "end; "
        "an incomplete download?)",
        source,
        data_begin + needed,
        bytes.size(),
        outside->view.name);
  }
  for (TensorInfo& t : infos) {
    t.view.bytes = t.bytes ? bytes.subspan(data_begin + t.offset, t.bytes) : bytes.subspan(0, 0);
  }
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  constexpr std::string_view kNames[] = {
      "u8",
      "i8",
      "u16",
      "i16",
      "u32",
      "i32",
      "f32",
      "bool",
      "string",
      "array",
      "u64",
      "i64",
      "f64"};
  return kNames[static_cast<size_t>(type)];
}

GgufFile GgufFile::open(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  return parse(file->bytes(), path.string(), file);
}

GgufFile GgufFile::parse(
    std::span<const std::byte> bytes, std::string source, std::shared_ptr<const MappedFile> file) {
  GgufFile result;
  result.source_ = std::move(source);
  result.file_ = file;
  Cursor cursor(bytes, result.source_);
  result.version_ = read_version(cursor, result.source_);
  const auto tensor_count = cursor.number<uint64_t>("the tensor count");
  const auto key_count = cursor.number<uint64_t>("the metadata count");
  // The smallest entries: a key of 0 bytes with a 1-byte value; a nameless scalar tensor.
  if (key_count > cursor.left() / 13 || tensor_count > cursor.left() / 24) {
    throw UserError(
        "{}: cut off or damaged: it claims {} metadata keys and {} tensors, but only {} bytes "
        "follow",
        result.source_,
        key_count,
        tensor_count,
        cursor.left());
  }
  for (uint64_t i = 0; i < key_count; ++i) {
    const std::string_view key = cursor.string(fmt::format("metadata key {}", i), kMaxKey);
    const GgufValue value = cursor.value(fmt::format("the value of {}", key));
    if (!result.metadata_.emplace(key, value).second) {
      throw UserError("{}: the metadata key {} comes twice", result.source_, key);
    }
  }
  result.alignment_ = read_alignment(result);

  std::vector<TensorInfo> infos;
  infos.reserve(std::min<uint64_t>(tensor_count, 1u << 16));  // the claim is not believed yet
  std::set<std::string_view> names;
  for (uint64_t i = 0; i < tensor_count; ++i) {
    infos.push_back(read_tensor_info(cursor, result.source_, i));
    if (!names.insert(infos.back().view.name).second) {
      throw UserError("{}: tensor {} comes twice", result.source_, infos.back().view.name);
    }
  }
  const uint64_t mask = result.alignment_ - 1;
  const uint64_t data_begin = (cursor.at() + mask) & ~mask;
  place_tensors(infos, bytes, data_begin, result.alignment_, result.source_);
  result.tensors_.reserve(infos.size());
  for (TensorInfo& t : infos) {
    t.view.file = file;
    result.tensors_.push_back(std::move(t.view));
  }
  return result;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto at = metadata_.find(key);
  return at == metadata_.end() ? nullptr : &at->second;
}

namespace {

template <typename T>
std::optional<T> typed(
    const GgufFile& file,
    std::string_view key,
    std::string_view want,
    std::optional<T> (GgufValue::*as)() const) {
  const GgufValue* value = file.find(key);
  if (!value) {
    return std::nullopt;
  }
  auto result = (value->*as)();
  if (!result) {
    throw UserError(
        "{}: {} is of type {}, want {}", file.source(), key, gguf_type_name(value->type), want);
  }
  return result;
}

}  // namespace

std::optional<int64_t> GgufFile::get_int(std::string_view key) const {
  return typed<int64_t>(*this, key, "an integer", &GgufValue::as_int);
}

std::optional<double> GgufFile::get_float(std::string_view key) const {
  return typed<double>(*this, key, "a number", &GgufValue::as_float);
}

std::optional<bool> GgufFile::get_bool(std::string_view key) const {
  return typed<bool>(*this, key, "a boolean", &GgufValue::as_bool);
}

std::optional<std::string_view> GgufFile::get_string(std::string_view key) const {
  return typed<std::string_view>(*this, key, "a string", &GgufValue::as_string);
}

}  // namespace quince
