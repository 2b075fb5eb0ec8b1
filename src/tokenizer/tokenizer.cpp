#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <limits>

#include <quince_bridge.h>

#include "base/error.h"
#include "tokenizer/tokenizer_handle.h"
#include "tokenizer/utf8.h"

namespace quince {

namespace {

qb_slice slice(std::string_view text) {
  return {text.data(), text.size()};
}

std::vector<qb_slice> slices(const auto& texts) {
  std::vector<qb_slice> out;
  out.reserve(texts.size());
  for (const auto& text : texts) {
    out.push_back(slice(text));
  }
  return out;
}

// Takes over memory of the bridge.
std::string take(qb_bytes bytes) {
  std::string text(bytes.data ? bytes.data : "", bytes.size);
  quince_bridge_bytes_free(bytes);
  return text;
}

struct IdsOwner {
  qb_ids ids{};
  ~IdsOwner() {
    quince_bridge_ids_free(ids);
  }
};

std::vector<Token> take(qb_ids raw) {
  const IdsOwner owner{raw};
  return std::vector<Token>(raw.data, raw.data + raw.size);
}

uint32_t flags_of(const Vocabulary& v) {
  uint32_t flags = 0;
  const auto set = [&](bool on, uint32_t flag) { flags |= on ? flag : 0; };
  set(v.byte_level, QB_BYTE_LEVEL);
  set(v.whole_words, QB_WHOLE_WORDS);
  set(v.whole_newlines, QB_WHOLE_NEWLINES);
  set(v.escape_spaces, QB_ESCAPE_SPACES);
  set(v.space_prefix, QB_SPACE_PREFIX);
  set(v.nfc, QB_NFC);
  set(v.lowercase, QB_LOWERCASE);
  set(v.strip_accents, QB_STRIP_ACCENTS);
  set(v.merge_spaces, QB_MERGE_SPACES);
  set(v.split_marks, QB_SPLIT_MARKS);
  return flags;
}

qb_kind kind_of(VocabularyKind kind) {
  switch (kind) {
    case VocabularyKind::merges:
      return QB_MERGES;
    case VocabularyKind::scores:
      return QB_SCORES;
    case VocabularyKind::unigram:
      return QB_UNIGRAM;
    case VocabularyKind::wordpiece:
      return QB_WORDPIECE;
  }
  return QB_MERGES;
}

qb_tokenizer* make(const Vocabulary& v, std::string_view source) {
  const size_t n = v.tokens.size();
  const auto fits = [&](size_t size) { return size == 0 || size == n; };
  if (!fits(v.scores.size()) || !fits(v.types.size()) || !fits(v.strips.size())) {
    throw UserError("{}: the lists of the vocabulary have different lengths", source);
  }
  const std::vector<qb_slice> tokens = slices(v.tokens);
  const std::vector<qb_slice> merges = slices(v.merges);
  const std::vector<qb_slice> splits = slices(v.splits);
  qb_vocabulary raw{};
  raw.kind = kind_of(v.kind);
  raw.flags = flags_of(v);
  raw.tokens = tokens.data();
  raw.token_count = n;
  raw.scores = v.scores.empty() ? nullptr : v.scores.data();
  static_assert(sizeof(TokenType) == 1);
  raw.types = v.types.empty() ? nullptr : reinterpret_cast<const uint8_t*>(v.types.data());
  raw.strips = v.strips.empty() ? nullptr : v.strips.data();
  raw.merges = merges.data();
  raw.merge_count = merges.size();
  raw.splits = splits.data();
  raw.split_count = splits.size();
  raw.unknown = v.unknown;
  raw.prefix = v.prefix.data();
  raw.prefix_count = v.prefix.size();
  raw.suffix = v.suffix.data();
  raw.suffix_count = v.suffix.size();
  raw.charsmap = slice(v.charsmap);
  qb_bytes error{};
  qb_tokenizer* made = quince_bridge_tokenizer_from_vocabulary(&raw, &error);
  if (!made) {
    throw UserError("{}: tokenizer: {}", source, take(error));
  }
  return made;
}

qb_tokenizer* make(std::string_view json, std::string_view source) {
  qb_bytes error{};
  qb_tokenizer* made = quince_bridge_tokenizer_from_json(slice(json), &error);
  if (!made) {
    throw UserError("{}: cannot read tokenizer.json: {}", source, take(error));
  }
  return made;
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(qb_tokenizer* made) : handle(made) {
    by_token = quince_bridge_decodes_by_token(handle, &strip_left);
    vocab_size = static_cast<int>(quince_bridge_vocab_size(handle));
  }
  ~Impl() {
    quince_bridge_tokenizer_free(handle);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::vector<Token> encode(
      std::string_view text, std::span<const qb_range> allowed, bool add) const {
    qb_ids ids{};
    qb_bytes error{};
    if (!quince_bridge_encode(
            handle, slice(text), allowed.data(), allowed.size(), add, &ids, &error)) {
      throw std::runtime_error("tokenizer: " + take(error));
    }
    return take(ids);
  }

  // Bytes, not yet UTF-8.
  std::string decode(std::span<const Token> ids, bool skip_special) const {
    qb_bytes bytes{};
    qb_bytes error{};
    const auto* data = reinterpret_cast<const uint32_t*>(ids.data());
    if (!quince_bridge_decode(handle, data, ids.size(), skip_special, &bytes, &error)) {
      throw std::runtime_error("tokenizer: " + take(error));
    }
    return take(bytes);
  }

  qb_tokenizer* handle;
  bool by_token = false;
  uint32_t strip_left = 0;
  int vocab_size = 0;
};

Tokenizer::Tokenizer(std::string_view tokenizer_json, std::string_view source)
    : impl_(std::make_unique<Impl>(make(tokenizer_json, source))) {}
Tokenizer::Tokenizer(const Vocabulary& vocabulary, std::string_view source)
    : impl_(std::make_unique<Impl>(make(vocabulary, source))) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<Token> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::string mended;
  if (!is_valid_utf8(text)) {
    mended = to_valid_utf8(text);
    text = mended;
  }
  const qb_range all{0, text.size()};
  return impl_->encode(text, std::span(&all, options.parse_special ? 1 : 0), options.add_special);
}

std::vector<Token> Tokenizer::encode(
    std::string_view text, std::span<const TextRange> special) const {
  std::vector<qb_range> allowed;
  allowed.reserve(special.size());
  for (TextRange range : special) {
    allowed.push_back({range.begin, range.end});
  }
  return impl_->encode(text, allowed, false);
}

std::string Tokenizer::decode(std::span<const Token> ids, DecodeOptions options) const {
  return to_valid_utf8(impl_->decode(ids, options.skip_special));
}

int Tokenizer::vocab_size() const {
  return impl_->vocab_size;
}

std::optional<Token> Tokenizer::token_to_id(std::string_view token) const {
  const int64_t id = quince_bridge_token_to_id(impl_->handle, slice(token));
  if (id < 0 || id > std::numeric_limits<Token>::max()) {
    return std::nullopt;
  }
  return static_cast<Token>(id);
}

std::optional<std::string> Tokenizer::id_to_token(Token id) const {
  qb_bytes token{};
  if (id < 0 || !quince_bridge_id_to_token(impl_->handle, static_cast<uint32_t>(id), &token)) {
    return std::nullopt;
  }
  return to_valid_utf8(take(token));
}

bool Tokenizer::is_special(Token id) const {
  return id >= 0 && quince_bridge_is_special(impl_->handle, static_cast<uint32_t>(id));
}

std::vector<std::string> Tokenizer::special_tokens() const {
  std::vector<std::string> texts;
  for (Token id : take(quince_bridge_special_ids(impl_->handle))) {
    if (auto text = id_to_token(id)) {
      texts.push_back(std::move(*text));
    }
  }
  return texts;
}

std::string Tokenizer::token_bytes(Token id) const {
  if (id < 0 || !impl_->by_token) {
    return id < 0 ? "" : impl_->decode(std::span(&id, 1), false);
  }
  return take(quince_bridge_decode_one(impl_->handle, static_cast<uint32_t>(id), false));
}

const qb_tokenizer* tokenizer_handle(const Tokenizer& tokenizer) {
  return tokenizer.impl_->handle;
}

struct StreamDecoder::Impl {
  Impl(const Tokenizer::Impl& of, DecodeOptions how)
      : tokenizer(&of), options(how), strip(how.continues ? 0 : of.strip_left) {}

  std::string add_one(Token id);
  std::string add_whole(Token id);

  const Tokenizer::Impl* tokenizer;
  DecodeOptions options;
  Utf8Assembler assembler;
  uint32_t strip;  // spaces still to be taken off the beginning
  // Tokenizers whose text is no concatenation: everything is decoded anew with each token.
  std::vector<Token> ids;
  std::string shown;
};

std::string StreamDecoder::Impl::add_one(Token id) {
  const std::string bytes = take(
      quince_bridge_decode_one(tokenizer->handle, static_cast<uint32_t>(id), options.skip_special));
  std::string_view rest = bytes;
  while (strip > 0 && !rest.empty()) {
    if (rest.front() != ' ') {
      strip = 0;
      break;
    }
    rest.remove_prefix(1);
    --strip;
  }
  std::string out;
  assembler.add(rest, out);
  return out;
}

std::string StreamDecoder::Impl::add_whole(Token id) {
  ids.push_back(id);
  std::string text = to_valid_utf8(tokenizer->decode(ids, options.skip_special));
  // A replacement mark at the end may be the beginning of a character.
  std::string_view safe = text;
  while (safe.ends_with("\xef\xbf\xbd")) {
    safe.remove_suffix(3);
  }
  if (!safe.starts_with(shown)) {
    return "";
  }
  std::string piece(safe.substr(shown.size()));
  shown += piece;
  return piece;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options)
    : impl_(std::make_unique<Impl>(*tokenizer.impl_, options)) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::add(Token id) {
  if (id < 0) {
    return "";
  }
  return impl_->tokenizer->by_token ? impl_->add_one(id) : impl_->add_whole(id);
}

std::string StreamDecoder::finish(bool cut) {
  std::string out;
  if (impl_->tokenizer->by_token) {
    if (!cut) {
      impl_->assembler.finish(out);
    }
    return out;
  }
  const std::string text =
      to_valid_utf8(impl_->tokenizer->decode(impl_->ids, impl_->options.skip_special));
  // What was shown may read differently now that more follows it. Only what lies behind it is new;
  // that begins with a whole character.
  size_t from = std::min(impl_->shown.size(), text.size());
  while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80) {
    ++from;
  }
  out = text.substr(from);
  while (cut && out.ends_with("\xef\xbf\xbd")) {
    out.resize(out.size() - 3);
  }
  impl_->ids.clear();
  impl_->shown.clear();
  return out;
}

}  // namespace quince
