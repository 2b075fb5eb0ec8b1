#include "constraint/constraint.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <quince_bridge.h>

#include "base/error.h"
#include "tokenizer/tokenizer_handle.h"

namespace quince {

namespace {

constexpr size_t kMostKept = 64;
constexpr size_t kMostKeptText = size_t{4} << 20;  // characters of all together

std::string take(qb_bytes bytes) {
  std::string text(bytes.data ? bytes.data : "", bytes.size);
  quince_bridge_bytes_free(bytes);
  return text;
}

qb_grammar_kind kind_of(ConstraintKind kind) {
  switch (kind) {
    case ConstraintKind::json_schema:
      return QB_JSON_SCHEMA;
    case ConstraintKind::json_object:
      return QB_JSON_OBJECT;
    case ConstraintKind::regex:
      return QB_REGEX;
    case ConstraintKind::choice:
      return QB_CHOICE;
    case ConstraintKind::lark:
      return QB_LARK;
    case ConstraintKind::gbnf:
      return QB_GBNF;
  }
  return QB_JSON_OBJECT;
}

const char* label(ConstraintKind kind) {
  switch (kind) {
    case ConstraintKind::json_schema:
    case ConstraintKind::json_object:
      return "JSON schema";
    case ConstraintKind::regex:
      return "regular expression";
    case ConstraintKind::choice:
      return "choices";
    case ConstraintKind::lark:
      return "Lark grammar";
    case ConstraintKind::gbnf:
      return "GBNF grammar";
  }
  return "constraint";
}

ConstraintMatcher::Place place(const qb_matcher_state& state) {
  return {state.accepting, state.complete};
}

}  // namespace

ConstraintMatcher::ConstraintMatcher(ConstraintMatcher&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)) {}

ConstraintMatcher& ConstraintMatcher::operator=(ConstraintMatcher&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

ConstraintMatcher::~ConstraintMatcher() {
  quince_bridge_matcher_free(handle_);
}

ConstraintMatcher::Place ConstraintMatcher::mask(TokenBits& bits) {
  qb_matcher_state state{};
  qb_bytes error{};
  if (!quince_bridge_matcher_mask(handle_, bits.data(), bits.size(), &state, &error)) {
    throw std::runtime_error(take(error));
  }
  return place(state);
}

ConstraintMatcher::Place ConstraintMatcher::consume(std::span<const Token> tokens) {
  qb_matcher_state state{};
  qb_bytes error{};
  const auto* ids = reinterpret_cast<const uint32_t*>(tokens.data());
  if (!quince_bridge_matcher_consume(handle_, ids, tokens.size(), &state, &error)) {
    throw std::runtime_error(take(error));
  }
  return place(state);
}

std::vector<Token> ConstraintMatcher::forced() {
  qb_ids ids{};
  qb_bytes error{};
  if (!quince_bridge_matcher_forced(handle_, &ids, &error)) {
    throw std::runtime_error(take(error));
  }
  std::vector<Token> tokens(ids.data, ids.data + ids.size);
  quince_bridge_ids_free(ids);
  return tokens;
}

void ConstraintMatcher::rollback(size_t count) {
  qb_bytes error{};
  if (!quince_bridge_matcher_rollback(handle_, count, &error)) {
    throw std::runtime_error(take(error));
  }
}

ConstraintMatcher ConstraintMatcher::clone() const {
  qb_matcher* copy = quince_bridge_matcher_clone(handle_);
  if (copy == nullptr) {
    throw std::runtime_error("the grammar could not be copied");
  }
  return ConstraintMatcher(copy);
}

Constraint::Constraint(ConstraintMatcher start, int vocab_size)
    : start_(std::move(start)), vocab_size_(vocab_size) {}

ConstraintMatcher Constraint::begin() const {
  return start_.clone();
}

ConstraintCompiler::ConstraintCompiler(const Tokenizer& tokenizer, int vocab_size)
    : vocab_size_(vocab_size) {
  qb_bytes error{};
  const auto ids = static_cast<uint32_t>(std::max(0, vocab_size));
  tokens_ = quince_bridge_tokens_new(tokenizer_handle(tokenizer), ids, &error);
  if (tokens_ == nullptr) {
    throw UserError("{}", take(error));
  }
}

ConstraintCompiler::~ConstraintCompiler() {
  quince_bridge_tokens_free(tokens_);
}

// The one used last comes first.
std::shared_ptr<const Constraint> ConstraintCompiler::find(const ConstraintSpec& spec) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
    return kept.spec.kind == spec.kind && kept.spec.text == spec.text;
  });
  if (found == kept_.end()) {
    return nullptr;
  }
  kept_.splice(kept_.begin(), kept_, found);
  return kept_.front().constraint;
}

std::shared_ptr<const Constraint> ConstraintCompiler::compile(const ConstraintSpec& spec) {
  {
    const std::scoped_lock lock(mutex_);
    if (auto known = find(spec)) {
      return known;
    }
  }
  for (const ConstraintPart& part : spec.parts) {
    try {
      start_of(ConstraintKind::json_schema, part.schema);
    } catch (const UserError& error) {
      throw UserError("{}: {}", part.name, error.what());
    }
  }
  auto made = std::make_shared<Constraint>(start_of(spec.kind, spec.text), vocab_size_);
  const std::scoped_lock lock(mutex_);
  kept_.push_front({spec, made});
  size_t text = 0;
  size_t count = 0;
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    text += kept->spec.text.size();
    ++count;
    if (count > 1 && (count > kMostKept || text > kMostKeptText)) {
      kept_.erase(kept, kept_.end());
      break;
    }
  }
  return made;
}

ConstraintMatcher ConstraintCompiler::start_of(ConstraintKind kind, const std::string& text) const {
  qb_bytes error{};
  qb_matcher* start =
      quince_bridge_grammar_compile(tokens_, kind_of(kind), {text.data(), text.size()}, &error);
  if (start == nullptr) {
    throw UserError("{}: {}", label(kind), take(error));
  }
  return ConstraintMatcher(start);
}

void ConstraintCompiler::forget(const Constraint* constraint) {
  const std::scoped_lock lock(mutex_);
  kept_.remove_if([&](const Kept& kept) { return kept.constraint.get() == constraint; });
}

}  // namespace quince
