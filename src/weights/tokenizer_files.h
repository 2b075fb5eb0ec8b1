// What a model directory says about its tokenizer, apart from the vocabulary itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "weights/gguf.h"
#include "weights/model_files.h"

namespace quince {

// Facts picked out of a tokenizer.json without building it in memory (it may have 30 MB).
struct TokenizerFacts {
  std::map<std::string, int32_t, std::less<>> ids;  // of the wanted token texts that exist
  std::set<std::string, std::less<>> special;       // those of them that are special tokens
  std::set<std::string, std::less<>> post_processor_tokens;  // special tokens it adds to one text
};
TokenizerFacts scan_tokenizer_json(
    std::string_view text,
    const std::set<std::string, std::less<>>& wanted,
    std::string_view source);

// Reads tokenizer.json, tokenizer_config.json and special_tokens_map.json of a directory; config
// and generation_config add their end tokens, special tokens that end a turn (turn_ends.h) are
// among them too. Throws a UserError with the remedy when there is only
// a tokenizer.model or vocab.json. No tokenizer at all: tokenizer_json stays empty and a note is
// added.
TokenizerSource read_tokenizer_files(
    const std::filesystem::path& directory,
    const boost::json::object& config,
    const boost::json::object& generation_config,
    std::vector<std::string>& notes);

// The same from the metadata of a GGUF file of any architecture.
TokenizerSource gguf_tokenizer_source(const GgufFile& file, std::vector<std::string>& notes);

// tokenizer_config's chat_template (text or list), chat_template.json, chat_template.jinja (wins)
// and additional_chat_templates/*.jinja.
std::vector<ChatTemplateSource> read_chat_templates(
    const std::filesystem::path& directory, const boost::json::object& tokenizer_config);

// Appends the ids in value (a number, a list of numbers, null or absent) that are not there yet.
void add_token_ids(
    std::vector<int32_t>& ids, const boost::json::value* value, std::string_view source);

// The text of a token given as "text" or {"content": "text"}; nothing for null and absent.
std::optional<std::string> token_text(const boost::json::value* value);

}  // namespace quince
