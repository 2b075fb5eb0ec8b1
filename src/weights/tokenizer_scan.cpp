// One pass over tokenizer.json with an event parser: the file can be large and only a few facts of
// it are wanted here.
#include <boost/json/basic_parser_impl.hpp>

#include "base/error.h"
#include "base/json_events.h"
#include "weights/json_file.h"
#include "weights/tokenizer_files.h"

namespace quince {

namespace json = boost::json;

namespace {

// Follows the path of keys; list elements count as the key "[]".
class Scanner : public JsonEvents {
 public:
  const std::set<std::string, std::less<>>* wanted = nullptr;
  TokenizerFacts facts;

  bool on_object_begin(json::error_code&) {
    enter(false);
    if (in_added_token()) {
      content_.clear();
      id_ = -1;
      special_ = false;
    }
    return true;
  }
  bool on_object_end(size_t, json::error_code&) {
    if (in_added_token() && id_ >= 0 && wanted->count(content_)) {
      facts.ids[content_] = id_;
      if (special_) {
        facts.special.insert(content_);
      }
    }
    leave();
    return true;
  }
  bool on_array_begin(json::error_code&) {
    // model.vocab of a unigram model: [["text", score], ...]; its ids are the positions.
    if (path_.size() == 2 && path_[1].key == "vocab") {
      unigram_ = true;
    }
    enter(true);
    if (unigram_ && path_.size() == 4) {
      text_.clear();
    }
    return true;
  }
  bool on_array_end(size_t, json::error_code&) {
    if (unigram_ && path_.size() == 4) {
      ++position_;
    }
    leave();
    if (path_.size() == 2) {
      unigram_ = false;
    }
    return true;
  }
  bool on_key_part(json::string_view part, size_t, json::error_code&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, size_t, json::error_code&) {
    text_.append(part.data(), part.size());
    path_.back().key.swap(text_);
    text_.clear();
    return true;
  }
  bool on_string_part(json::string_view part, size_t, json::error_code&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_string(json::string_view part, size_t, json::error_code&) {
    text_.append(part.data(), part.size());
    string_value();
    text_.clear();
    return true;
  }
  bool on_int64(int64_t value, json::string_view, json::error_code&) {
    if (value < 0 || value > INT32_MAX) {
      return true;
    }
    if (in_added_token() && path_.back().key == "id") {
      id_ = static_cast<int32_t>(value);
    } else if (
        path_.size() == 3 && path_[0].key == "model" && path_[1].key == "vocab" &&
        wanted->count(path_[2].key)) {
      facts.ids.emplace(path_[2].key, static_cast<int32_t>(value));
    }
    return true;
  }
  bool on_bool(bool value, json::error_code&) {
    if (in_added_token() && path_.back().key == "special") {
      special_ = value;
    }
    return true;
  }

 private:
  struct Level {
    bool list;
    std::string key;
  };

  void enter(bool list) {
    path_.push_back({list, list ? "[]" : ""});
  }
  void leave() {
    path_.pop_back();
  }

  bool in_added_token() const {
    return path_.size() == 3 && path_[0].key == "added_tokens" && path_[1].list;
  }

  void string_value() {
    if (in_added_token() && path_.back().key == "content") {
      content_ = text_;
      return;
    }
    if (unigram_ && path_.size() == 4 && wanted->count(text_)) {
      facts.ids.emplace(text_, position_);
      return;
    }
    // post_processor[.processors[]].single[].SpecialToken.id of a TemplateProcessing.
    const size_t depth = path_.size();
    if (depth >= 5 && path_[0].key == "post_processor" && path_[depth - 1].key == "id" &&
        path_[depth - 2].key == "SpecialToken" && path_[depth - 4].key == "single") {
      facts.post_processor_tokens.insert(text_);
    }
  }

  std::vector<Level> path_;
  std::string text_;
  std::string content_;  // of the added token that is open
  int32_t id_ = -1;
  bool special_ = false;
  bool unigram_ = false;
  int32_t position_ = 0;
};

}  // namespace

TokenizerFacts scan_tokenizer_json(
    std::string_view text,
    const std::set<std::string, std::less<>>& wanted,
    std::string_view source) {
  json::parse_options options;
  options.max_depth = 64;
  json::basic_parser<Scanner> parser(options);
  parser.handler().wanted = &wanted;
  json::error_code ec;
  const size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (ec) {
    throw UserError("{}: not valid JSON at byte {}: {}", source, used, ec.message());
  }
  return std::move(parser.handler().facts);
}

}  // namespace quince
