// Any text as config.json, tokenizer.json (the facts picked out of it) and the hub's list of files.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "weights/hub_client.h"
#include "weights/model_files.h"
#include "weights/tokenizer_files.h"

using namespace quince;

namespace {

template <typename Body>
void allow_user_error(Body body) {
  try {
    body();
  } catch (const UserError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  allow_user_error([&] {
    const DirectoryConfig parsed = parse_model_config(text, "input");
    std::vector<int32_t> ids;
    add_token_ids(ids, parsed.config.if_contains("eos_token_id"), "input");
    token_text(parsed.config.if_contains("bos_token"));
    read_chat_templates("/nonexistent", parsed.config);
  });
  allow_user_error([&] { scan_tokenizer_json(text, {"<s>", "</s>", "a"}, "input"); });
  allow_user_error([&] { parse_listing(text, "input"); });
  return 0;
}
