#include "convert/tokenizer_json.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include <boost/json.hpp>

#include "base/error.h"

namespace quince {

namespace json = boost::json;

namespace {

constexpr const char* kSpaceMark = "\xe2\x96\x81";  // U+2581

TokenType type_of(const Vocabulary& vocabulary, size_t id) {
  return vocabulary.types.empty() ? TokenType::normal : vocabulary.types[id];
}

bool is_ordinary(TokenType type) {
  return type == TokenType::normal || type == TokenType::user_defined || type == TokenType::unused;
}

bool is_newlines(std::string_view token) {
  return token.size() > 1 && token.find_first_not_of('\n') == std::string_view::npos;
}

json::array added_tokens(const Vocabulary& vocabulary) {
  json::array list;
  for (size_t id = 0; id < vocabulary.tokens.size(); id++) {
    TokenType type = type_of(vocabulary, id);
    bool whole = vocabulary.whole_newlines && is_newlines(vocabulary.tokens[id]);
    bool special = type == TokenType::control || type == TokenType::unknown;
    if (!special && type != TokenType::user_defined && !whole) {
      continue;
    }
    uint8_t strips = vocabulary.strips.empty() ? 0 : vocabulary.strips[id];
    list.push_back(
        {{"id", id},
         {"content", vocabulary.tokens[id]},
         {"single_word", false},
         {"lstrip", (strips & 1) != 0},
         {"rstrip", (strips & 2) != 0},
         {"normalized", false},
         {"special", special}});
  }
  return list;
}

json::value sequence(const char* key, json::array stages) {
  if (stages.empty()) {
    return nullptr;
  }
  if (stages.size() == 1) {
    return stages.front();
  }
  return json::object{{"type", "Sequence"}, {key, std::move(stages)}};
}

json::value normalizer(const Vocabulary& vocabulary) {
  json::array stages;
  if (vocabulary.nfc) {
    stages.push_back({{"type", "NFC"}});
  }
  if (vocabulary.space_prefix && !vocabulary.split_marks) {
    stages.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
  }
  if (vocabulary.escape_spaces && !vocabulary.split_marks) {
    stages.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}});
  }
  return sequence("normalizers", std::move(stages));
}

json::value pre_tokenizer(const Vocabulary& vocabulary) {
  json::array stages;
  for (const std::string& expression : vocabulary.splits) {
    stages.push_back(
        {{"type", "Split"},
         {"pattern", {{"Regex", expression}}},
         {"behavior", "Isolated"},
         {"invert", false}});
  }
  if (vocabulary.byte_level) {
    stages.push_back(
        {{"type", "ByteLevel"},
         {"add_prefix_space", false},
         {"trim_offsets", true},
         {"use_regex", false}});
  }
  if (vocabulary.split_marks) {
    stages.push_back(
        {{"type", "Metaspace"},
         {"replacement", kSpaceMark},
         {"prepend_scheme", "always"},
         {"split", true}});
  }
  return sequence("pretokenizers", std::move(stages));
}

json::value decoder(const Vocabulary& vocabulary) {
  if (vocabulary.byte_level) {
    return json::object{
        {"type", "ByteLevel"},
        {"add_prefix_space", true},
        {"trim_offsets", true},
        {"use_regex", true}};
  }
  json::array stages;
  stages.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}});
  stages.push_back({{"type", "ByteFallback"}});
  stages.push_back({{"type", "Fuse"}});
  if (vocabulary.space_prefix) {
    stages.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return sequence("decoders", std::move(stages));
}

json::value post_processor(const Vocabulary& vocabulary) {
  if (vocabulary.prefix.empty() && vocabulary.suffix.empty()) {
    return nullptr;
  }
  json::object special;
  auto append = [&](json::array& list, const std::vector<uint32_t>& ids) {
    for (uint32_t id : ids) {
      std::string_view text = vocabulary.tokens.at(id);
      list.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
      special[text] = {{"id", text}, {"ids", json::array{id}}, {"tokens", json::array{text}}};
    }
  };
  json::array single;
  append(single, vocabulary.prefix);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  append(single, vocabulary.suffix);
  json::array pair = single;
  append(pair, vocabulary.prefix);
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  append(pair, vocabulary.suffix);
  return json::object{
      {"type", "TemplateProcessing"},
      {"single", std::move(single)},
      {"pair", std::move(pair)},
      {"special_tokens", std::move(special)}};
}

// SentencePiece joins the two pieces whose joint text has the best score. As a list: every way to
// cut a token into two tokens, ordered by the score of the whole.
json::array merges_from_scores(const Vocabulary& vocabulary) {
  std::unordered_map<std::string_view, uint32_t> ids;
  ids.reserve(vocabulary.tokens.size());
  for (size_t id = 0; id < vocabulary.tokens.size(); id++) {
    if (is_ordinary(type_of(vocabulary, id))) {
      ids.emplace(vocabulary.tokens[id], static_cast<uint32_t>(id));
    }
  }
  struct Merge {
    float score;
    uint32_t left;
    uint32_t right;
  };
  std::vector<Merge> merges;
  for (const auto& [token, id] : ids) {
    for (size_t cut = 1; cut < token.size(); cut++) {
      if ((static_cast<unsigned char>(token[cut]) & 0xc0) == 0x80) {
        continue;  // inside of a character
      }
      auto left = ids.find(token.substr(0, cut));
      auto right = ids.find(token.substr(cut));
      if (left != ids.end() && right != ids.end()) {
        merges.push_back({vocabulary.scores[id], left->second, right->second});
      }
    }
  }
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(b.score, a.left, a.right) < std::tie(a.score, b.left, b.right);
  });
  json::array list;
  list.reserve(merges.size());
  for (const Merge& merge : merges) {
    list.push_back(json::array{vocabulary.tokens[merge.left], vocabulary.tokens[merge.right]});
  }
  return list;
}

json::array merges_from_list(const Vocabulary& vocabulary) {
  json::array list;
  list.reserve(vocabulary.merges.size());
  for (std::string_view merge : vocabulary.merges) {
    size_t space = merge.find(' ', 1);  // a token may itself be a space
    if (space != std::string_view::npos) {
      list.push_back(json::array{merge.substr(0, space), merge.substr(space + 1)});
    }
  }
  return list;
}

json::object model(const Vocabulary& vocabulary) {
  bool scored = vocabulary.kind == VocabularyKind::scores;
  json::object vocab;
  vocab.reserve(vocabulary.tokens.size());
  bool bytes = false;
  for (size_t id = 0; id < vocabulary.tokens.size(); id++) {
    vocab[vocabulary.tokens[id]] = id;
    bytes = bytes || type_of(vocabulary, id) == TokenType::byte;
  }
  json::value unknown = nullptr;
  if (!vocabulary.byte_level && vocabulary.unknown >= 0) {
    unknown = vocabulary.tokens.at(static_cast<size_t>(vocabulary.unknown));
  }
  return {
      {"type", "BPE"},
      {"dropout", nullptr},
      {"unk_token", unknown},
      {"continuing_subword_prefix", nullptr},
      {"end_of_word_suffix", nullptr},
      {"fuse_unk", false},
      {"byte_fallback", bytes && !vocabulary.byte_level},
      {"ignore_merges", vocabulary.whole_words},
      {"vocab", std::move(vocab)},
      {"merges", scored ? merges_from_scores(vocabulary) : merges_from_list(vocabulary)}};
}

}  // namespace

std::string tokenizer_json(const Vocabulary& vocabulary, const std::string& source) {
  if (vocabulary.kind != VocabularyKind::merges && vocabulary.kind != VocabularyKind::scores) {
    throw UserError(
        "{}: its vocabulary ({}) cannot be written as a tokenizer.json yet; take tokenizer.json "
        "from the "
        "original model",
        source,
        vocabulary.description);
  }
  json::object object{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens(vocabulary)},
      {"normalizer", normalizer(vocabulary)},
      {"pre_tokenizer", pre_tokenizer(vocabulary)},
      {"post_processor", post_processor(vocabulary)},
      {"decoder", decoder(vocabulary)},
      {"model", model(vocabulary)}};
  return json::serialize(object);
}

}  // namespace quince
