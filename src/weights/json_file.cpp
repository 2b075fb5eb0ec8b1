#include "weights/json_file.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json/basic_parser_impl.hpp>

#include "base/error.h"
#include "base/json_events.h"

namespace quince {

namespace json = boost::json;

namespace {

// Sees every key of a text and stops at the first that its object already has.
class UniqueKeys : public JsonEvents {
 public:
  std::string duplicate;
  bool found = false;

  bool on_object_begin(json::error_code&) {
    keys_.emplace_back();
    return true;
  }
  bool on_object_end(size_t, json::error_code&) {
    keys_.pop_back();
    return true;
  }
  bool on_key_part(json::string_view part, size_t, json::error_code&) {
    key_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, size_t, json::error_code& ec) {
    key_.append(part.data(), part.size());
    if (!keys_.back().insert(key_).second) {
      duplicate = key_;
      found = true;
      ec = json::error::incomplete;  // any error: parsing ends here
      return false;
    }
    key_.clear();
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;  // of the open objects, outermost first
  std::string key_;                          // parts so far
};

json::parse_options options_of(const JsonLimits& limits) {
  json::parse_options options;
  options.max_depth = limits.max_depth;
  return options;
}

void check_unique_keys(std::string_view text, std::string_view source, const JsonLimits& limits) {
  json::basic_parser<UniqueKeys> parser(options_of(limits));
  json::error_code ec;
  parser.write_some(false, text.data(), text.size(), ec);
  if (parser.handler().found) {
    throw UserError("{}: the key \"{}\" comes twice", source, parser.handler().duplicate);
  }
}

std::string printed(const json::value& value) {
  std::string text = json::serialize(value);
  if (text.size() > 60) {
    text.resize(60);
    text += "...";
  }
  return text;
}

}  // namespace

json::value parse_json(std::string_view text, std::string_view source, JsonLimits limits) {
  // A byte order mark is not JSON, but editors leave it.
  if (text.starts_with("\xef\xbb\xbf")) {
    text.remove_prefix(3);
  }
  if (limits.unique_keys) {
    check_unique_keys(text, source, limits);
  }
  json::stream_parser parser({}, options_of(limits));
  json::error_code ec;
  const size_t used = parser.write_some(text.data(), text.size(), ec);
  if (!ec && used < text.size() &&
      text.find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
    ec = json::error::extra_data;
  }
  if (!ec) {
    parser.finish(ec);
  }
  if (ec == json::error::too_deep) {
    throw UserError("{}: nested more than {} levels deep", source, limits.max_depth);
  }
  if (ec) {
    throw UserError("{}: not valid JSON at byte {}: {}", source, used, ec.message());
  }
  return parser.release();
}

json::object parse_json_object(std::string_view text, std::string_view source, JsonLimits limits) {
  json::value value = parse_json(text, source, limits);
  if (!value.is_object()) {
    throw UserError("{}: want a JSON object, found {}", source, printed(value));
  }
  return std::move(value.as_object());
}

std::optional<std::string> read_text_file_if_any(
    const std::filesystem::path& path, size_t max_bytes) {
  struct Descriptor {
    int fd;
    ~Descriptor() {
      if (fd >= 0) {
        ::close(fd);
      }
    }
  } file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return std::nullopt;
    }
    throw UserError("{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  struct stat info{};
  if (::fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    throw UserError("{}: not a regular file", path.string());
  }
  if (static_cast<uint64_t>(info.st_size) > max_bytes) {
    throw UserError(
        "{}: has {} bytes, which is over the limit of {} for such a file",
        path.string(),
        static_cast<uint64_t>(info.st_size),
        max_bytes);
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(file.fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      throw UserError("{}: cannot read: {}", path.string(), std::strerror(errno));
    }
    if (n == 0) {
      break;
    }
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  // A byte order mark is no part of any text, but editors leave it.
  if (text.starts_with("\xef\xbb\xbf")) {
    text.erase(0, 3);
  }
  return text;
}

std::string read_text_file(const std::filesystem::path& path, size_t max_bytes) {
  auto text = read_text_file_if_any(path, max_bytes);
  if (!text) {
    throw UserError("{}: no such file", path.string());
  }
  return std::move(*text);
}

std::optional<int64_t> json_int(
    const json::object& object, std::string_view key, std::string_view source) {
  const json::value* value = object.if_contains(key);
  if (!value || value->is_null()) {
    return std::nullopt;
  }
  if (value->is_int64()) {
    return value->get_int64();
  }
  // Python tools write whole numbers as 2.0 now and then.
  if (value->is_double() && std::abs(value->get_double()) < 0x1p53 &&
      value->get_double() == std::floor(value->get_double())) {
    return static_cast<int64_t>(value->get_double());
  }
  throw UserError("{}: {} is {}, want a whole number", source, key, printed(*value));
}

std::optional<std::string> json_string(
    const json::object& object, std::string_view key, std::string_view source) {
  const json::value* value = object.if_contains(key);
  if (!value || value->is_null()) {
    return std::nullopt;
  }
  if (!value->is_string()) {
    throw UserError("{}: {} is {}, want a string", source, key, printed(*value));
  }
  return std::string(value->get_string());
}

}  // namespace quince
