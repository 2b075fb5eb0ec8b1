#include "cache/prompt_prefix.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace quince {

namespace {

// Whether a token at `length` looks at the position.
bool looked_at(const PageShape::Layer& layer, int64_t position, int64_t length) {
  return position < length &&
         (layer.window == 0 || position < layer.keep || position > length - layer.window);
}

constexpr std::string_view kBatchInvariant = " batch-invariant";

// An identity is that of config and weights, behind which stands how they are computed with.
void check_identity(const std::string& source, std::string_view file, std::string_view model) {
  if (file == model) {
    return;
  }
  const auto parted = [](std::string_view& identity) {
    const bool invariant = identity.ends_with(kBatchInvariant);
    identity.remove_suffix(invariant ? kBatchInvariant.size() : 0);
    return invariant;
  };
  const bool file_invariant = parted(file);
  const bool invariant = parted(model);
  if (file == model) {
    throw UserError(
        "{}: this prompt cache was made {} --deterministic and is loaded {} it, and the two "
        "compute "
        "other keys and values: start {} it, or make the file again",
        source,
        file_invariant ? "with" : "without",
        invariant ? "with" : "without",
        file_invariant ? "with" : "without");
  }
  const auto type_of = [](std::string_view identity) {
    const size_t space = identity.find(' ');
    return space == std::string_view::npos ? "none" : identity.substr(space + 1);
  };
  if (file.substr(0, file.find(' ')) == model.substr(0, model.find(' '))) {
    throw UserError(
        "{}: this prompt cache was made with --dtype {} and is loaded with {}, and the two compute "
        "other keys and values: start with the former (none: without --dtype), or make the file "
        "again",
        source,
        type_of(file),
        type_of(model));
  }
  throw UserError(
      "{}: this prompt cache is of another model, or the model's files have changed since: make it "
      "again with this one",
      source);
}

void check_file(
    const PromptCacheFile& file,
    const PageShape& shape,
    const std::string& model,
    PromptPrefix& prefix) {
  if (file.model) {
    check_identity(file.source, *file.model, model);
  }
  if (file.layers.size() != shape.layers.size() || file.kv_heads != shape.kv_heads ||
      file.head_dim != shape.head_dim) {
    throw UserError(
        "{}: this prompt cache has {} layers with {} heads of {}, the model {} layers with {} "
        "heads "
        "of {}",
        file.source,
        file.layers.size(),
        file.kv_heads,
        file.head_dim,
        shape.layers.size(),
        shape.kv_heads,
        shape.head_dim);
  }
  if (!file.model) {
    prefix.notes.push_back(fmt::format(
        "{}: does not name its model; it is taken for this one's because its shapes fit",
        file.source));
  }
}

// The pieces of a page that somebody looks at. Those without a window are always there.
uint64_t page_pieces(
    const PromptCacheFile& file, const PageShape& shape, int64_t first, int64_t last) {
  uint64_t pieces = 0;
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    const PageShape::Layer& layer = shape.layers[i];
    for (int64_t p = first; p < last; ++p) {
      if (!looked_at(layer, p, file.length)) {
        continue;
      }
      pieces |= layer.piece;
      if (!file.layers[i].row_of(p)) {
        throw UserError(
            "{}: position {} of layer {} is not in it, for it keeps {} of {} tokens: run it with "
            "--max-kv-size {}",
            file.source,
            p,
            i,
            file.layers[i].rows,
            file.length,
            file.layers[i].max_size);
      }
    }
  }
  return pieces;
}

// The pieces of a page of which the file has every position.
uint64_t full_pieces(
    const PromptCacheFile& file, const PageShape& shape, int64_t first, int64_t last) {
  uint64_t pieces = 0;
  uint64_t lacking = 0;
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    bool all = true;
    for (int64_t p = first; p < last && all; ++p) {
      all = file.layers[i].row_of(p).has_value();
    }
    (all ? pieces : lacking) |= shape.layers[i].piece;
  }
  return pieces & ~lacking;
}

// Keys and values are what they are because of what their tokens looked at.
void check_rings(const PromptCacheFile& file, const PageShape& shape) {
  const auto shown = [](int64_t size) {
    return size == 0 ? std::string("all tokens") : fmt::format("{} tokens", size);
  };
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    const PageShape::Layer& layer = shape.layers[i];
    const int64_t size = layer.window == 0 ? 0 : layer.window + layer.keep;
    if (file.layers[i].max_size != size || file.layers[i].keep != layer.keep) {
      throw UserError(
          "{}: was computed with layer {} seeing {}, and here it sees {}: it can be shared only "
          "under the --max-kv-size that it was made with",
          file.source,
          i,
          shown(file.layers[i].max_size),
          shown(size));
    }
  }
}

// What is shared must not lack what the next token looks at.
uint64_t shared_pieces(
    const PromptCacheFile& file, const PageShape& shape, int64_t first, int64_t last) {
  const uint64_t pieces = full_pieces(file, shape, first, last);
  if ((page_pieces(file, shape, first, last) & ~pieces) != 0) {
    throw UserError(
        "{}: its {} tokens are more than its rings keep, and what they have overwritten cannot be "
        "brought back: it serves one prompt (quince run --prompt-cache-file), and cannot be shared",
        file.source,
        file.length);
  }
  return pieces;
}

void fill_page(
    const PromptCacheFile& file,
    const PageCodec& codec,
    const PageShape& shape,
    uint64_t pieces,
    int64_t first,
    std::span<std::byte> bytes) {
  const int64_t dim = shape.head_dim;
  const auto size = static_cast<size_t>(shape.kv_heads * kCachePage * dim);
  std::vector<float> keys(size);
  std::vector<float> values(size);
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    if ((pieces & shape.layers[i].piece) == 0) {
      continue;
    }
    std::fill(keys.begin(), keys.end(), 0.0f);
    std::fill(values.begin(), values.end(), 0.0f);
    for (int64_t slot = 0; slot < kCachePage; ++slot) {
      if (file.layers[i].row_of(first + slot)) {
        file.read(
            static_cast<int>(i),
            first + slot,
            kCachePage * dim,
            keys.data() + slot * dim,
            values.data() + slot * dim);
      }
    }
    codec.write_rows(pieces, bytes, i, keys.data(), values.data());
  }
}

// The page from which on all pages have the piece.
int64_t first_whole(const PromptImages& images, uint64_t piece) {
  int64_t page = std::ssize(images.pages);
  while (page > 0 && (images.pages[static_cast<size_t>(page - 1)].pieces & piece) != 0) {
    --page;
  }
  return page;
}

// Of all pages, one layer of one page at a time.
class ImageRows {
 public:
  ImageRows(const PromptImages& images, const PageCodec& codec)
      : codec_(codec), shape_(codec.shape()) {
    for (const PageImage& image : images.pages) {
      pieces_.push_back(image.pieces);
      bytes_.emplace_back(image.bytes);
      image.copy(bytes_.back());
    }
    const size_t size =
        static_cast<size_t>(shape_.kv_heads) * kCachePage * static_cast<size_t>(shape_.head_dim);
    keys_.resize(size);
    values_.resize(size);
  }

  bool read(int layer, int64_t position, float* keys, float* values) {
    const int64_t page = position / kCachePage;
    const auto at = static_cast<size_t>(page);
    if ((pieces_[at] & shape_.layers[static_cast<size_t>(layer)].piece) == 0) {
      return false;
    }
    if (page != page_ || layer != layer_) {
      codec_.read_rows(
          pieces_[at], bytes_[at], static_cast<size_t>(layer), keys_.data(), values_.data());
      page_ = page;
      layer_ = layer;
    }
    const int64_t dim = shape_.head_dim;
    for (int64_t head = 0; head < shape_.kv_heads; ++head) {
      const int64_t from = (head * kCachePage + position % kCachePage) * dim;
      std::copy_n(keys_.begin() + from, dim, keys + head * dim);
      std::copy_n(values_.begin() + from, dim, values + head * dim);
    }
    return true;
  }

 private:
  const PageCodec& codec_;
  PageShape shape_;
  std::vector<uint64_t> pieces_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<float> keys_;
  std::vector<float> values_;
  int64_t page_ = -1;
  int layer_ = -1;
};

}  // namespace

PromptPrefix make_prefix(
    const PromptCacheFile& file, const PageCodec& codec, const std::string& model, PrefixUse use) {
  PromptPrefix prefix;
  const PageShape shape = codec.shape();
  check_file(file, shape, model, prefix);
  if (use == PrefixUse::shared) {
    check_rings(file, shape);
  }
  const bool turned = std::any_of(shape.layers.begin(), shape.layers.end(), [&](const auto& layer) {
    return layer.window > 0 && file.length > layer.window + layer.keep;
  });
  if (turned && !shape.rings) {
    throw UserError(
        "{}: its {} tokens are more than --max-kv-size keeps, and the MLX kernels cannot go on "
        "from "
        "that: use --kernels native, or a larger size",
        file.source,
        file.length);
  }
  prefix.tokens_known = !file.tokens.empty();
  prefix.tokens = file.tokens;
  prefix.tokens.resize(static_cast<size_t>(file.length));
  for (int64_t first = 0; first < file.length; first += kCachePage) {
    const int64_t last = std::min<int64_t>(first + kCachePage, file.length);
    const uint64_t pieces = use == PrefixUse::shared ? shared_pieces(file, shape, first, last)
                                                     : page_pieces(file, shape, first, last);
    std::vector<std::byte> bytes(codec.bytes(pieces));
    fill_page(file, codec, shape, pieces, first, bytes);
    const CachePart* before = prefix.pages.empty() ? nullptr : prefix.pages.back().get();
    prefix.pages.push_back(codec.load(first / kCachePage, pieces, bytes, before));
  }
  return prefix;
}

bool can_share(const PromptImages& images, const PageCodec& codec) {
  const PageShape shape = codec.shape();
  return std::all_of(shape.layers.begin(), shape.layers.end(), [&](const auto& layer) {
    return layer.keep == 0 || first_whole(images, layer.piece) == 0;
  });
}

void write_prefix(
    const std::filesystem::path& path,
    const PromptImages& images,
    const std::vector<int32_t>& tokens,
    const PageCodec& codec,
    const std::string& model,
    const std::string& model_name) {
  const PageShape shape = codec.shape();
  PromptCacheSpec spec;
  spec.kv_heads = shape.kv_heads;
  spec.head_dim = shape.head_dim;
  spec.type = shape.type;
  spec.tokens = tokens;
  spec.model = model;
  spec.model_name = model_name;
  for (const PageShape::Layer& layer : shape.layers) {
    spec.layers.push_back(
        {layer.window == 0 ? 0 : layer.window + layer.keep,
         layer.keep,
         first_whole(images, layer.piece) * kCachePage});
  }
  ImageRows rows(images, codec);
  write_prompt_cache(path, spec, [&](int layer, int64_t position, float* keys, float* values) {
    return rows.read(layer, position, keys, values);
  });
}

}  // namespace quince
