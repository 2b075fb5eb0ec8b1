#include "cli/prompt.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/closest.h"
#include "base/error.h"
#include "cli/args.h"
#include "weights/json_file.h"

namespace quince::cli {

namespace {

constexpr size_t kMostPromptBytes = size_t{256} << 20;

// A template is chosen for plain conversation: the one named "default", else the only one, else the
// first.
const ChatTemplateSource* choose_template(const std::vector<ChatTemplateSource>& templates) {
  for (const ChatTemplateSource& candidate : templates) {
    if (candidate.name == "default") {
      return &candidate;
    }
  }
  return templates.empty() ? nullptr : &templates.front();
}

// "<|im_end|>" or "2".
Token find_end_token(
    const Tokenizer& tokenizer, const std::string& text, const std::string& model) {
  if (auto id = tokenizer.token_to_id(text)) {
    return *id;
  }
  bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (digits) {
    int64_t id = parse_integer("--eos-token", text, 0, std::numeric_limits<int32_t>::max());
    if (id < tokenizer.vocab_size()) {
      return static_cast<Token>(id);
    }
    throw UserError(
        "--eos-token {}: the vocabulary of {} ends at {}", text, model, tokenizer.vocab_size() - 1);
  }
  std::string hint;
  if (auto near = closest(text, tokenizer.special_tokens())) {
    hint = "; did you mean " + *near + "?";
  }
  throw UserError("--eos-token {}: not a token of {}{}", text, model, hint);
}

std::string_view without_bom(std::string_view text) {
  return text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;
}

}  // namespace

void check_utf8(std::string_view text, const std::string& source) {
  for (size_t i = 0; i < text.size();) {
    auto byte = static_cast<unsigned char>(text[i]);
    size_t length = byte < 0x80                   ? 1
                    : byte >= 0xc2 && byte < 0xe0 ? 2
                    : byte >= 0xe0 && byte < 0xf0 ? 3
                    : byte >= 0xf0 && byte < 0xf5 ? 4
                                                  : 0;
    bool good = length > 0 && i + length <= text.size();
    for (size_t j = 1; good && j < length; j++) {
      good = (static_cast<unsigned char>(text[i + j]) & 0xc0) == 0x80;
    }
    if (good && length > 2) {  // overlong forms, surrogates, beyond U+10FFFF
      auto next = static_cast<unsigned char>(text[i + 1]);
      good = !(byte == 0xe0 && next < 0xa0) && !(byte == 0xed && next >= 0xa0) &&
             !(byte == 0xf0 && next < 0x90) && !(byte == 0xf4 && next >= 0x90);
    }
    if (!good) {
      throw UserError(
          "{}: not UTF-8 text (byte {:#04x} at offset {}); convert it with iconv", source, byte, i);
    }
    i += length;
  }
}

boost::json::object special_token_texts(const TokenizerSource& source, const Tokenizer& tokenizer) {
  boost::json::object texts;
  for (const auto& [key, value] : source.tokenizer_config) {
    if (!std::string_view(key).ends_with("_token")) {
      continue;
    }
    if (value.is_string()) {
      texts[key] = value;
    } else if (const auto* object = value.if_object()) {  // an AddedToken
      const boost::json::value* content = object->if_contains("content");
      if (content != nullptr && content->is_string()) {
        texts[key] = *content;
      }
    }
  }
  auto fill = [&](const char* key, std::optional<Token> id) {
    if (!texts.contains(key) && id) {
      if (auto text = tokenizer.id_to_token(*id)) {
        texts[key] = *text;
      }
    }
  };
  fill("bos_token", source.bos_token_id);
  if (!source.eos_token_ids.empty()) {
    fill("eos_token", source.eos_token_ids.front());
  }
  return texts;
}

Tokenizer make_tokenizer(const TokenizerSource& source, const std::string& model) {
  if (source.vocabulary != nullptr) {
    return Tokenizer(*source.vocabulary, model);
  }
  if (source.tokenizer_json.empty()) {
    throw UserError(
        "{}: has no tokenizer (no tokenizer.json and no vocabulary), so it cannot be asked", model);
  }
  return Tokenizer(source.tokenizer_json, model);
}

TextSide make_text_side(
    TokenizerSource source,
    const std::vector<ChatTemplateSource>& templates,
    const std::string& model,
    const TextOptions& options) {
  TextSide text(model, make_tokenizer(source, model));
  text.bos = source.bos_token_id;
  text.add_bos = source.add_bos;
  text.end_tokens = source.eos_token_ids;
  for (const std::string& token : options.end_tokens) {
    text.end_tokens.push_back(find_end_token(text.tokenizer, token, model));
  }
  std::sort(text.end_tokens.begin(), text.end_tokens.end());
  text.end_tokens.erase(
      std::unique(text.end_tokens.begin(), text.end_tokens.end()), text.end_tokens.end());
  if (!options.needs_template) {
    return text;
  }
  boost::json::object special = special_token_texts(source, text.tokenizer);
  if (options.template_file) {
    text.template_name = *options.template_file;
    text.template_text = read_prompt_file(*options.template_file);
    text.chat_template.emplace(text.template_text, std::move(special), *options.template_file);
  } else if (const ChatTemplateSource* chosen = choose_template(templates)) {
    text.template_name = chosen->name;
    text.template_text = chosen->text;
    text.chat_template.emplace(chosen->text, std::move(special), model + ": chat template");
  }
  return text;
}

std::string read_stdin() {
  std::string text;
  char buffer[65536];
  while (true) {
    ssize_t count = ::read(STDIN_FILENO, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      throw UserError("cannot read standard input: {}", std::strerror(errno));
    }
    if (count == 0) {
      break;
    }
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMostPromptBytes) {
      throw UserError("standard input: more than {} MB", kMostPromptBytes >> 20);
    }
  }
  check_utf8(text, "standard input");
  return std::string(without_bom(text));
}

bool stdin_has_text() {
  struct stat status{};
  if (::fstat(STDIN_FILENO, &status) != 0) {
    return false;
  }
  if (S_ISREG(status.st_mode)) {
    return ::lseek(STDIN_FILENO, 0, SEEK_CUR) < status.st_size;
  }
  int waiting = 0;
  return S_ISFIFO(status.st_mode) && ::ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0 && waiting > 0;
}

std::string read_prompt_file(const std::string& path) {
  if (path == "-") {
    return read_stdin();
  }
  if (path.empty()) {
    throw UserError("'': the name of a file with text is empty");
  }
  std::string text = read_text_file(path, kMostPromptBytes);
  check_utf8(text, path);
  return std::string(without_bom(text));
}

}  // namespace quince::cli
