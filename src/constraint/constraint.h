// Answers held to a form: which tokens may come next. A Constraint is compiled once from its text
// and shared; a ConstraintMatcher is one answer's place in it; a ConstraintState
// (constraint_state.h) runs a matcher beside the model's computation. No MLX.
//
// JSON schemas: a keyword that cannot be held to is refused with its place in the schema, never
// ignored; unknown keywords are annotations, as the standard says. Formats are held to. White space
// between the parts of JSON is at most a space, or a line break with indentation.
//
// Lark and GBNF: where a grammar is recursive, its non-recursive parts are read as the longest
// text that fits. Answers always fit the grammar, but of an ambiguous one some texts are never
// written.
//
// Bytes are what counts, so it works with every tokenizer whose text is made of its tokens one
// after another. Special tokens are never part of an answer unless a grammar names them.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "constraint/constraint_spec.h"
#include "tokenizer/tokenizer.h"

struct qb_matcher;
struct qb_tokens;

namespace quince {

// Bit t % 32 of word t / 32 allows token t.
using TokenBits = std::vector<uint32_t>;

// One thread at a time. Errors throw std::runtime_error with the reason: the grammar costs too much
// at this place, or leads to where no token can go on. The matcher is of no use then.
class ConstraintMatcher {
 public:
  struct Place {
    bool accepting = false;  // the answer may end here
    bool complete = false;   // it must
  };

  explicit ConstraintMatcher(qb_matcher* handle) : handle_(handle) {}
  ConstraintMatcher(ConstraintMatcher&&) noexcept;
  ConstraintMatcher& operator=(ConstraintMatcher&&) noexcept;
  ~ConstraintMatcher();

  // bits: (vocabulary + 31) / 32 words, overwritten.
  Place mask(TokenBits& bits);
  // The first token that does not fit throws; those before it are taken.
  Place consume(std::span<const Token> tokens);
  // Tokens that are the only way on, as the tokenizer would write them; often none.
  std::vector<Token> forced();
  // Takes back the last tokens consumed.
  void rollback(size_t count);
  ConstraintMatcher clone() const;

 private:
  qb_matcher* handle_;
};

// Compiled. Any thread.
class Constraint {
 public:
  Constraint(ConstraintMatcher start, int vocab_size);

  ConstraintMatcher begin() const;  // throws std::runtime_error
  int vocab_size() const {
    return vocab_size_;
  }

 private:
  ConstraintMatcher start_;
  int vocab_size_;
};

// Compiles for one vocabulary and keeps what was compiled last. Any thread.
class ConstraintCompiler {
 public:
  // vocab_size: the model's; tokens beyond the tokenizer's are never allowed. Keeps what it needs
  // of the tokenizer. Throws UserError when the tokenizer's text is not made token by token.
  ConstraintCompiler(const Tokenizer& tokenizer, int vocab_size);
  ~ConstraintCompiler();
  ConstraintCompiler(const ConstraintCompiler&) = delete;
  ConstraintCompiler& operator=(const ConstraintCompiler&) = delete;

  // Throws UserError naming the kind or the part, the place where there is one, and the reason.
  // Bounded in time and memory whatever the text is; the first call for a large vocabulary takes
  // some hundred milliseconds.
  std::shared_ptr<const Constraint> compile(const ConstraintSpec& spec);
  // It has failed in use: whoever asks for it next gets it compiled anew.
  void forget(const Constraint* constraint);

 private:
  struct Kept {
    ConstraintSpec spec;
    std::shared_ptr<const Constraint> constraint;
  };
  std::shared_ptr<const Constraint> find(const ConstraintSpec& spec);
  ConstraintMatcher start_of(ConstraintKind kind, const std::string& text) const;

  qb_tokens* tokens_;
  int vocab_size_;
  std::mutex mutex_;  // of kept_, not held while compiling
  std::list<Kept> kept_;
};

}  // namespace quince
