#include "weights/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "base/error.h"

namespace quince {

namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

// Texts that end a turn in every vocabulary that has them. Careless converters write them as
// ordinary tokens; then nobody could ask the model to stop.
constexpr std::array<std::string_view, 9> kTurnEnds{
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>"};

// One file's vocabulary being read.
class Reader {
 public:
  Reader(const GgufFile& file, std::vector<std::string>& notes) : file_(file), notes_(notes) {}
  std::shared_ptr<const Vocabulary> read();

 private:
  std::string key(std::string_view name) const {
    return std::string(kPrefix) + std::string(name);
  }
  const GgufValue* list(std::string_view name, bool strings, bool needed) const;
  std::optional<int32_t> id(std::string_view name, std::optional<int32_t> otherwise = {}) const;
  bool flag(std::string_view name, bool otherwise) const {
    return file_.get_bool(key(name)).value_or(otherwise);
  }

  void read_lists();
  void mend_types();
  void set_strips();
  void wrap(bool add_bos, bool add_eos);

  void byte_pairs(std::string_view model);
  void sentence_piece();
  void word_piece();
  void unigram();

  const GgufFile& file_;
  std::vector<std::string>& notes_;
  Vocabulary out_;
};

const GgufValue* Reader::list(std::string_view name, bool strings, bool needed) const {
  const GgufValue* value = file_.find(key(name));
  if (!value) {
    if (needed) {
      throw UserError("{}: has no {}{}", file_.source(), kPrefix, name);
    }
    return nullptr;
  }
  const bool is_string = value->element == GgufType::string;
  if (value->type != GgufType::array || value->element == GgufType::array || is_string != strings) {
    throw UserError(
        "{}: {}{} is no list of {}",
        file_.source(),
        kPrefix,
        name,
        strings ? "strings" : "numbers");
  }
  return value;
}

// The id under "NAME_token_id"; both ways of writing "none" are nothing.
std::optional<int32_t> Reader::id(std::string_view name, std::optional<int32_t> otherwise) const {
  const std::string full = key(fmt::format("{}_token_id", name));
  const auto value = file_.get_int(full);
  const auto count = static_cast<int64_t>(out_.tokens.size());
  if (!value) {
    return otherwise && *otherwise < count ? otherwise : std::nullopt;
  }
  if (*value == -1 || *value == UINT32_MAX) {
    return std::nullopt;
  }
  if (*value < 0 || *value >= count) {
    throw UserError(
        "{}: {} is {}, but the vocabulary has {} tokens", file_.source(), full, *value, count);
  }
  return static_cast<int32_t>(*value);
}

void Reader::read_lists() {
  out_.tokens = list("tokens", true, true)->strings();
  if (out_.tokens.empty()) {
    throw UserError("{}: {}tokens is empty", file_.source(), kPrefix);
  }
  const auto same_length = [&](std::string_view name, size_t count) {
    if (count != out_.tokens.size()) {
      throw UserError(
          "{}: {}{} has {} entries for {} tokens",
          file_.source(),
          kPrefix,
          name,
          count,
          out_.tokens.size());
    }
  };
  if (const GgufValue* scores = list("scores", false, false)) {
    out_.scores = scores->floats();
    same_length("scores", out_.scores.size());
  }
  if (const GgufValue* types = list("token_type", false, false)) {
    const std::vector<int32_t> numbers = types->ints();
    same_length("token_type", numbers.size());
    out_.types.reserve(numbers.size());
    for (int32_t number : numbers) {
      const bool known = number >= 1 && number <= 6;
      out_.types.push_back(known ? static_cast<TokenType>(number) : TokenType::normal);
    }
  }
}

// Control tokens that are not marked as such.
void Reader::mend_types() {
  const bool had_types = !out_.types.empty();
  if (!had_types) {
    out_.types.assign(out_.tokens.size(), TokenType::normal);
    for (const char* name : {"bos", "eos", "eot", "padding", "cls", "seperator", "mask"}) {
      if (const auto token = id(name)) {
        out_.types[static_cast<size_t>(*token)] = TokenType::control;
      }
    }
    if (out_.unknown >= 0) {
      out_.types[static_cast<size_t>(out_.unknown)] = TokenType::unknown;
    }
  }
  for (size_t i = 0; i < out_.tokens.size(); ++i) {
    const std::string_view text = out_.tokens[i];
    if (out_.types[i] != TokenType::control && text.starts_with('<') &&
        std::find(kTurnEnds.begin(), kTurnEnds.end(), text) != kTurnEnds.end()) {
      out_.types[i] = TokenType::control;
    }
  }
}

// GGUF files do not say which added tokens swallow the white space around them; their models do.
void Reader::set_strips() {
  std::string name(file_.get_string("general.name").value_or(""));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  const bool phi3 =
      name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
  const std::string_view pre = file_.get_string(key("pre")).value_or("");
  const std::string_view arch = file_.get_string("general.architecture").value_or("");
  const bool mask = pre.starts_with("jina-v2-") || arch == "nomic-bert-moe" ||
                    arch == "jina-bert-v3" || name.find("modern-bert") != std::string::npos;
  if (!phi3 && !mask) {
    return;
  }
  out_.strips.assign(out_.tokens.size(), 0);
  for (size_t i = 0; i < out_.tokens.size(); ++i) {
    const std::string_view text = out_.tokens[i];
    const bool special = out_.types[i] != TokenType::normal && out_.types[i] != TokenType::byte;
    if (mask) {
      out_.strips[i] = text == "<mask>" || text == "[MASK]" ? 1 : 0;
    } else if (text == "</s>" || special) {
      const bool bare = text == "<unk>" || text == "<s>" || text == "<|endoftext|>";
      out_.strips[i] = bare ? 0 : 2;
    }
  }
}

void Reader::wrap(bool add_bos, bool add_eos) {
  const bool bert = out_.kind == VocabularyKind::wordpiece;
  const auto put = [](std::vector<uint32_t>& side, std::optional<int32_t> token) {
    if (token) {
      side.push_back(static_cast<uint32_t>(*token));
    }
  };
  if (flag("add_bos_token", add_bos)) {
    put(out_.prefix, id("bos", bert ? id("cls", 101) : std::nullopt));
  }
  if (flag("add_sep_token", bert)) {
    put(out_.suffix, id("seperator", bert ? std::optional(102) : std::nullopt));
  } else if (flag("add_eos_token", add_eos)) {
    put(out_.suffix, id("eos"));
  }
}

void Reader::byte_pairs(std::string_view model) {
  std::string_view pre = file_.get_string(key("pre")).value_or("");
  if (model == "gemma4") {
    pre = "gemma4";
  }
  auto rules = find_pre_tokenizer(pre);
  if (!rules) {
    notes_.push_back(fmt::format(
        "{}: {}; words are cut by the default rules and answers may be worse",
        file_.source(),
        pre.empty() ? "names no pre-tokenizer" : fmt::format("unknown pre-tokenizer {}", pre)));
    rules = find_pre_tokenizer("default");
  }
  out_.kind = VocabularyKind::merges;
  out_.merges = list("merges", true, true)->strings();
  out_.splits.assign(rules->splits.begin(), rules->splits.end());
  out_.whole_words = rules->whole_words;
  // Qwen 3.5 composes characters; vocabularies of older models with its pre-tokenizer do not.
  const std::string_view arch = file_.get_string("general.architecture").value_or("");
  out_.nfc = rules->nfc || (pre == "qwen35" && arch.starts_with("qwen3"));
  const bool characters =
      pre == "gemma4" || pre == "granite-embed-multi-311m" || pre == "sarvam-moe";
  out_.byte_level = !characters;
  out_.escape_spaces = characters;
  out_.whole_newlines = characters && pre != "sarvam-moe";
  out_.unknown = characters ? id("unknown").value_or(-1) : -1;
  out_.description =
      fmt::format("BPE{}, pre-tokenizer {}", characters ? "" : ", byte-level", rules->name);
  mend_types();
  wrap(rules->add_bos, false);
  // Files of Gemma 4 say false here; the model was trained with it.
  if (pre == "gemma4" && out_.prefix.empty()) {
    if (const auto bos = id("bos")) {
      out_.prefix.push_back(static_cast<uint32_t>(*bos));
    }
  }
}

void Reader::sentence_piece() {
  out_.kind = VocabularyKind::scores;
  list("scores", false, true);
  out_.escape_spaces = true;
  out_.space_prefix = flag("add_space_prefix", true);
  out_.unknown = id("unknown", 0).value_or(-1);
  out_.description = "SentencePiece BPE";
  mend_types();
  wrap(true, false);
}

void Reader::word_piece() {
  out_.kind = VocabularyKind::wordpiece;
  out_.unknown = id("unknown", 100).value_or(-1);
  out_.lowercase = flag("normalizer.lowercase", true);
  out_.strip_accents = flag("normalizer.strip_accents", out_.lowercase);
  out_.description = "WordPiece";
  mend_types();
  wrap(true, false);
}

void Reader::unigram() {
  out_.kind = VocabularyKind::unigram;
  list("scores", false, true);
  out_.escape_spaces = true;
  out_.space_prefix = flag("add_space_prefix", true);
  out_.merge_spaces = flag("remove_extra_whitespaces", false);
  out_.unknown = id("unknown", 2).value_or(-1);
  out_.description = "SentencePiece Unigram";
  if (const GgufValue* map = list("precompiled_charsmap", false, false)) {
    if (map->element != GgufType::u8 && map->element != GgufType::i8) {
      throw UserError("{}: {}precompiled_charsmap is no list of bytes", file_.source(), kPrefix);
    }
    out_.charsmap.assign(reinterpret_cast<const char*>(map->bytes.data()), map->bytes.size());
  }
  mend_types();
  wrap(false, true);
}

std::shared_ptr<const Vocabulary> Reader::read() {
  const std::string_view model = file_.get_string(key("model")).value_or("");
  read_lists();
  if (model == "gpt2" || model == "gemma4") {
    byte_pairs(model);
  } else if (model == "llama") {
    sentence_piece();
  } else if (model == "bert") {
    word_piece();
  } else if (model == "t5") {
    unigram();
  } else {
    throw UserError(
        "{}: {}model is \"{}\"; known are gpt2, llama, gemma4, bert and t5. Use a file with one of "
        "these, or the model's directory with its tokenizer.json",
        file_.source(),
        kPrefix,
        model);
  }
  set_strips();
  out_.owner = file_.file();
  return std::make_shared<const Vocabulary>(std::move(out_));
}

}  // namespace

std::shared_ptr<const Vocabulary> gguf_vocabulary(
    const GgufFile& file, std::vector<std::string>& notes) {
  return Reader(file, notes).read();
}

}  // namespace quince
