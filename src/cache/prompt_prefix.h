// A prompt that was computed somewhere else, ready for caches to begin with; and the way of such
// caches into files of mlx-lm's layout and out of them (prompt_cache_file.h). No MLX. Any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cache/page_codec.h"
#include "cache/prompt_cache_file.h"

namespace quince {

struct PromptPrefix {
  std::vector<int32_t> tokens;  // zeros where the file does not name them
  bool tokens_known = false;
  std::vector<std::shared_ptr<CachePart>> pages;
  std::vector<std::string> notes;  // lines the user should see

  int64_t length() const {
    return static_cast<int64_t>(tokens.size());
  }
};

// What a cache held, page by page, until it is written.
struct PromptImages {
  std::vector<PageImage> pages;
};

// What pages are to serve: the one prompt that goes on from the end of the file, or all that begin
// with its tokens, which may part from it earlier; then a page is as a cache would have it, with
// all of its positions, or without the layers that lack one.
enum class PrefixUse { own, shared };

// Throws UserError when the file is of another model, has another shape, or lacks positions that
// caches of this kind look at.
PromptPrefix make_prefix(
    const PromptCacheFile& file,
    const PageCodec& codec,
    const std::string& model,
    PrefixUse use = PrefixUse::own);

// Whether a file of these pages can be shared: rings that begin with kept rows, of which they have
// no whole page, cannot once they have turned.
bool can_share(const PromptImages& images, const PageCodec& codec);

// images: of all pages of these tokens. Throws UserError.
void write_prefix(
    const std::filesystem::path& path,
    const PromptImages& images,
    const std::vector<int32_t>& tokens,
    const PageCodec& codec,
    const std::string& model,
    const std::string& model_name);

}  // namespace quince
