// The table of named pre-tokenizers: how byte-level BPE vocabularies cut text into words. The
// expressions are those of the models' own tokenizer.json files; names as the converters of GGUF
// files write them.
#include <algorithm>
#include <array>

#include "weights/gguf_tokenizer.h"

namespace quince {

namespace {

using Splits = std::array<std::string_view, 6>;  // "" where there are fewer

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The family of GPT-4's expression: contractions, a word with the sign before it, digits, signs
// with the line ends behind them, blank lines, spaces. The members differ in how many digits go
// together and in details.
constexpr std::string_view kDigits1 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDigits3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDigitsAll =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kNoContractions =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kWithMarks =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSpaceSteps =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";

// The family of GPT-4o's: words end where capitals begin anew.
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4oDigits1 =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kKimi =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// DeepSeek's two families.
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293})"
    R"(\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386})"
    R"(\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f})"
    R"(\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba})"
    R"(\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15})"
    R"(\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b})"
    R"(\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4})"
    R"(\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4})"
    R"(\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124})"
    R"(\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f})"
    R"(\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4})"
    R"(\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f})"
    R"(\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17})"
    R"(\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3})"
    R"(\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df})"
    R"(\x{1e900}-\x{1e943}]+)";
constexpr std::string_view kDeepSeekSigns =
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";
constexpr std::string_view kDeepSeekScripts =
    R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
constexpr std::string_view kCjkKana = R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSpark =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kYoutuScripts =
    R"([\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018})"
    R"(\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+|[)"
    R"(\x{3105}-\x{312f}]+|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr std::string_view kAfmoeScripts =
    R"([\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{8c48}-\x{faff}\x{3040}-\x{309f}\x{30a0}-\x{30ff})"
    R"(\x{ff65}-\x{ff9f}\x{2f00}-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}\x{1780}-\x{17ff})"
    R"(\x{1000}-\x{109f}\x{aa60}-\x{aa7f}\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af}\x{1100}-\x{11ff}])"
    R"(+)";

constexpr std::string_view kBloom =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)";
constexpr std::string_view kLines = R"([^\n]+|[\n]+)";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kDigitRun = R"(\p{N}+)";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kUpToThree = R"(\p{N}{1,3})";
// Groups of three counted from the right; the tokenizer knows these two by sight.
constexpr std::string_view kGroupsBounded = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr std::string_view kGroups = R"((?=(\d{3})+(?!\d)))";
constexpr std::string_view kFalconSigns = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kDefaultSigns = R"([\p{P}\$\+<=>\^~\|]+)";

struct Rule {
  std::string_view name;
  Splits splits;
  bool whole_words = false;
  bool nfc = false;
  bool add_bos = false;
};

constexpr bool kWhole = true;
constexpr bool kNfc = true;
constexpr bool kBos = true;

// Sorted by family, then by name.
constexpr std::array kRules = std::to_array<Rule>({
    {"default", {kDefaultSigns, kGpt2, kDigitRun, kThreeDigits}},
    // GPT-2
    {"a.x-4.0", {kGpt2}},
    {"exaone4", {kGpt2}},
    {"gigachat", {kGpt2}},
    {"gpt-2", {kGpt2}},
    {"granite-docling", {kGpt2}},
    {"jais", {kGpt2}},
    {"jina-de", {kGpt2}},
    {"jina-es", {kGpt2}},
    {"jina-v1-en", {kGpt2}},
    {"jina-v2-code", {kGpt2}},
    {"jina-v2-de", {kGpt2}},
    {"jina-v2-es", {kGpt2}},
    {"mellum", {kGpt2}},
    {"modern-bert", {kGpt2}},
    {"mpt", {kGpt2}, false, kNfc},
    {"olmo", {kGpt2}, false, kNfc},
    {"phi-2", {kGpt2}},
    {"roberta-bpe", {kGpt2}},
    {"trillion", {kGpt2}},
    // GPT-2 after single digits
    {"codeshell", {kDigit, kGpt2}},
    {"command-r", {kDigit, kGpt2}, false, kNfc},
    {"exaone", {kDigit, kGpt2}},
    {"mellum2", {kDigit, kGpt2}},
    {"minerva-7b", {kDigit, kGpt2}},
    {"refact", {kDigit, kGpt2}},
    {"smollm", {kDigit, kGpt2}},
    {"starcoder", {kDigit, kGpt2}},
    {"falcon", {kFalconSigns, kGpt2, kThreeDigits}},
    // GPT-4
    {"chatglm-bpe", {kDigits3}},
    {"dbrx", {kDigits3}},
    {"glm4", {kDigits3}, kWhole},
    {"glm5", {kDigits3}, kWhole},
    {"falcon-h1", {kDigits3}, kWhole, false, kBos},
    {"falcon3", {kDigits3}, kWhole, false, kBos},
    {"jina-v5-nano", {kDigits3}, kWhole, false, kBos},
    {"lfm2", {kDigits3}, kWhole, false, kBos},
    {"llama-bpe", {kDigits3}, kWhole, false, kBos},
    {"llama-v3", {kDigits3}, kWhole, false, kBos},
    {"llama3", {kDigits3}, kWhole, false, kBos},
    {"midm-2.0", {kDigits3}, kWhole, false, kBos},
    {"pixtral", {kDigits3}, kWhole, false, kBos},
    {"smaug-bpe", {kDigits3}},
    {"jais-2", {kSpaceSteps}},
    {"minicpm5", {kUpToThree, kDigitsAll}, kWhole},
    {"deepseek-r1-qwen", {kDigits1}},
    {"f2llmv2", {kDigits1}, false, kNfc},
    {"grok-2", {kDigits1}},
    {"hunyuan", {kDigits1}},
    {"kormo", {kDigits1}},
    {"laguna", {kLines, kDigits1}},
    {"megrez", {kDigits1}, false, kNfc},
    {"qwen2", {kDigits1}, false, kNfc},
    {"qwen35", {kWithMarks}},
    {"seed-coder", {kSeedCoder}},
    {"solar-open", {kDigits1}},
    {"stablelm2", {kDigits1}},
    {"ufakzeka", {kNoContractions}},
    {"bailingmoe", {kBailing}},
    {"bailingmoe2", {kBailing}},
    {"llada-moe", {kBailing}},
    {"exaone-moe", {kExaoneMoe}},
    // GPT-4o
    {"gpt-4o", {kGpt4o}},
    {"granite-embed-multi-97m", {kGpt4o}, kWhole},
    {"kanana2", {kGpt4o}},
    {"llama4", {kGpt4o}},
    {"minimax-m2", {kGpt4o}},
    {"talkie", {kGpt4o}},
    {"tekken", {kTekken}, kWhole, false, kBos},
    {"cohere2moe", {kGroupsBounded, kGpt4o}, false, kNfc},
    {"tiny_aya", {kGroupsBounded, kGpt4o}, false, kNfc},
    {"youtu", {kYoutuScripts, kGpt4oDigits1}, kWhole},
    {"kimi-k2", {kKimi}},
    // DeepSeek
    {"deepseek-coder", {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekScripts, kDigit}},
    {"deepseek-llm",
     {"[\r\n]", kDeepSeekLetters, kDeepSeekSigns, R"(\s+$)", kDeepSeekScripts, kDigitRun}},
    {"deepseek-v3", {kUpToThree, kCjkKana, kDeepSeek3}},
    {"hunyuan-dense", {kUpToThree, kCjkKana, kDeepSeek3}},
    {"hy_v4", {kUpToThree, kCjkKana, kDeepSeek3}},
    {"joyai-llm", {kUpToThree, kCjkKana, kDeepSeek3}},
    {"spark2_5", {kUpToThree, kCjkKana, kSpark, kDigit}},
    {"afmoe", {kGroups, kAfmoeScripts, kDeepSeek3}},
    // Others
    {"bloom", {kBloom}},
    {"gpt3-finnish", {kBloom}},
    {"poro-chat", {kBloom}},
    {"viking", {kBloom, kDigit}},
    {"superbpe", {kDigitRun, kGroups}},
    {"chameleon",
     {"<sentinel:[0-9]+>",
      "IMGIMG[A-I]{1,4}Z",
      R"([\t\n]|    |  )",
      kDigit,
      R"([\p{P}!-/:-@\[-`{-~])",
      kGpt2},
     false,
     false,
     kBos},
    // Byte-pair encoding on characters, spaces written as U+2581
    {"gemma4", {kLines}, false, false, kBos},
    {"granite-embed-multi-311m", {kLines}, false, false, kBos},
    {"sarvam-moe", {kLines}},
});

}  // namespace

std::optional<PreTokenizer> find_pre_tokenizer(std::string_view name) {
  const auto at = std::find_if(
      kRules.begin(), kRules.end(), [&](const Rule& rule) { return rule.name == name; });
  if (at == kRules.end()) {
    return std::nullopt;
  }
  PreTokenizer found{at->name, {}, at->whole_words, at->nfc, at->add_bos};
  for (std::string_view split : at->splits) {
    if (!split.empty()) {
      found.splits.push_back(split);
    }
  }
  return found;
}

std::vector<std::string_view> pre_tokenizer_names() {
  std::vector<std::string_view> names;
  for (const Rule& rule : kRules) {
    names.push_back(rule.name);
  }
  return names;
}

}  // namespace quince
