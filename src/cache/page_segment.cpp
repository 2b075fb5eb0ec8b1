#include "cache/page_segment.h"

#include <charconv>

#include <boost/json.hpp>

#include "base/error.h"
#include "weights/json_file.h"
#include "weights/safetensors.h"

namespace quince {

namespace json = boost::json;

namespace {

constexpr std::string_view kFormat = "quince-pages-1";
constexpr size_t kMostTokens = 4096;  // of a page, so that a damaged number does not take memory

std::string number_text(uint64_t number) {
  return fmt::format("{:016x}", number);  // a head's length does not depend on what is in it
}

uint64_t parse_number(const json::object& object, std::string_view key, std::string_view source) {
  const std::string text = json_string(object, key, source).value_or("");
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UserError("{}: {} is \"{}\", want a hexadecimal number", source, key, text);
  }
  return number;
}

PageChain parse_name(const json::object& object, std::string_view key, std::string_view source) {
  const std::string text = json_string(object, key, source).value_or("");
  const std::optional<PageChain> chain = parse_chain(text);
  if (!chain) {
    throw UserError("{}: {} is \"{}\", want 32 hexadecimal digits", source, key, text);
  }
  return *chain;
}

// Of all that the metadata say: a head is small, and one that is damaged must not mislead.
uint64_t metadata_sum(const PageKind& kind, std::string_view pages) {
  std::string all = fmt::format("{}\n{}\n", kind.model, kind.format);
  all += pages;
  return page_checksum(std::as_bytes(std::span(all)));
}

std::vector<int32_t> parse_tokens(const json::object& object, std::string_view source) {
  const json::value* value = object.if_contains("tokens");
  if (!value || !value->is_array() || value->get_array().empty() ||
      value->get_array().size() > kMostTokens) {
    throw UserError("{}: tokens is not a list of 1 to {} numbers", source, kMostTokens);
  }
  std::vector<int32_t> tokens;
  for (const json::value& token : value->get_array()) {
    const int64_t* number = token.if_int64();
    if (!number || *number < 0 || *number > std::numeric_limits<int32_t>::max()) {
      throw UserError("{}: {} is not a token", source, json::serialize(token));
    }
    tokens.push_back(static_cast<int32_t>(*number));
  }
  return tokens;
}

StoredPage parse_page(const json::value& value, const TensorView& tensor, std::string_view source) {
  if (!value.is_object()) {
    throw UserError("{}: a page is described by {}", source, json::serialize(value));
  }
  const json::object& object = value.get_object();
  StoredPage page;
  page.label.before = parse_name(object, "before", source);
  page.label.name = parse_name(object, "name", source);
  page.label.tokens = parse_tokens(object, source);
  page.label.pieces = parse_number(object, "pieces", source);
  page.sum = parse_number(object, "sum", source);
  if (chain_next(page.label.before, page.label.tokens) != page.label.name) {
    throw UserError("{}: {}: its name is not that of its tokens", source, tensor.name);
  }
  page.bytes = tensor.bytes.size();
  return page;
}

}  // namespace

std::string segment_head(PageSegment& segment) {
  json::array pages;
  for (const StoredPage& page : segment.pages) {
    pages.push_back(json::object{
        {"name", chain_text(page.label.name)},
        {"before", chain_text(page.label.before)},
        {"tokens", json::array(page.label.tokens.begin(), page.label.tokens.end())},
        {"pieces", number_text(page.label.pieces)},
        {"sum", number_text(page.sum)}});
  }
  const std::string text = json::serialize(pages);
  json::object head{
      {"__metadata__",
       json::object{
           {"format", kFormat},
           {"model", segment.kind.model},
           {"kv", segment.kind.format},
           {"pages", text},
           {"sum", number_text(metadata_sum(segment.kind, text))}}}};
  uint64_t at = 0;
  for (size_t i = 0; i < segment.pages.size(); ++i) {
    const uint64_t end = at + segment.pages[i].bytes;
    head[fmt::format("page.{}", i)] = json::object{
        {"dtype", "U8"},
        {"shape", json::array{segment.pages[i].bytes}},
        {"data_offsets", json::array{at, end}}};
    at = end;
  }
  std::string bytes(sizeof(uint64_t), '\0');
  bytes += json::serialize(head);
  bytes.resize((bytes.size() + 63) / 64 * 64, ' ');
  const uint64_t length = bytes.size() - sizeof(uint64_t);
  std::memcpy(bytes.data(), &length, sizeof(length));
  at = bytes.size();
  for (StoredPage& page : segment.pages) {
    page.offset = at;
    at += page.bytes;
  }
  return bytes;
}

PageSegment parse_segment(std::span<const std::byte> bytes, std::string_view source) {
  const SafetensorsContent content = parse_safetensors(bytes, source, nullptr);
  const auto text = [&](std::string_view key) {
    return json_string(content.metadata, key, source).value_or("");
  };
  if (text("format") != kFormat) {
    throw UserError("{}: format is \"{}\", want {}", source, text("format"), kFormat);
  }
  PageSegment segment;
  segment.kind = {text("model"), text("kv")};
  const std::string pages_text = text("pages");
  if (parse_number(content.metadata, "sum", source) != metadata_sum(segment.kind, pages_text)) {
    throw UserError("{}: its description of the pages is damaged", source);
  }
  const json::value pages = parse_json(pages_text, source, {.max_depth = 4});
  if (!pages.is_array() || pages.get_array().size() != content.tensors.size()) {
    throw UserError("{}: it does not describe its {} pages", source, content.tensors.size());
  }
  for (size_t i = 0; i < content.tensors.size(); ++i) {
    const TensorView& tensor = content.tensors[i];  // in the order of their data
    if (tensor.name != fmt::format("page.{}", i) || tensor.type != TensorType::u8) {
      throw UserError("{}: tensor {} is where page.{} is expected, as U8", source, tensor.name, i);
    }
    StoredPage page = parse_page(pages.get_array()[i], tensor, source);
    page.offset = static_cast<uint64_t>(tensor.bytes.data() - bytes.data());
    segment.pages.push_back(std::move(page));
  }
  return segment;
}

}  // namespace quince
