// attend_rows on AMX tiles (16 x 16 sums of bf16 pairs). For the scores, which go through an
// exponential, queries and keys are cut into two bf16 numbers, high + low, and three of the four
// products are summed: nearly f32 arithmetic (keys that are bf16 already need two products only).
// The weighted sum of values takes weights and values as plain bf16: its error averages out over
// positions and is that of the result's own rounding, since the next matrix reads it as bf16 or 8
// bits.
#include "kernels/attention_impl.h"
#include "kernels/attention_tiles_amx.h"

namespace quince::kernels {

namespace {

// Where things lie in the workspace, in bytes.
struct TileWorkspace {
  int n;  // rows * group
  int row_tiles;
  int steps;                        // depth steps over head_dim
  int value_columns;                // tiles over value_width
  int64_t queries, keys;            // high and, behind it, low
  int64_t queries_half, keys_half;  // bf16 numbers in each
  int64_t values, weights;
  int64_t scores, outputs, maxima, totals, end;

  TileWorkspace(const AttentionHead& head, int rows) {
    n = rows * head.group;
    row_tiles = (n + kTile - 1) / kTile;
    steps = (head.head_dim + kDepth - 1) / kDepth;
    value_columns = head.value_width / kTile;
    queries_half = static_cast<int64_t>(row_tiles) * steps * kTileNumbers;
    keys_half = static_cast<int64_t>(kSpanBlocks) * steps * 2 * kTileNumbers;
    queries = 0;
    keys = queries + queries_half * 4;
    values = keys + keys_half * 4;
    weights = values + static_cast<int64_t>(kSpanBlocks) * value_columns * kTileBytes;
    scores = weights + static_cast<int64_t>(row_tiles) * kSpanBlocks * kTileBytes;
    int64_t padded = static_cast<int64_t>(row_tiles) * kTile;
    outputs = scores + padded * kSpan * 4;
    maxima = outputs + padded * head.value_width * 4;
    totals = maxima + padded * 4;
    end = totals + padded * 4;
  }
};

// Work on one piece of attend_rows; the pieces share this.
template <typename T, int kKeyTerms>
class TileRows {
 public:
  TileRows(const AttentionHead& head, int rows, int64_t first_position, std::byte* workspace)
      : head_(head), rows_(rows), first_position_(first_position), at_(head, rows) {
    queries_ = reinterpret_cast<uint16_t*>(workspace + at_.queries);
    keys_ = reinterpret_cast<uint16_t*>(workspace + at_.keys);
    values_ = reinterpret_cast<uint16_t*>(workspace + at_.values);
    weights_ = reinterpret_cast<uint16_t*>(workspace + at_.weights);
    scores_ = reinterpret_cast<float*>(workspace + at_.scores);
    outputs_ = reinterpret_cast<float*>(workspace + at_.outputs);
    maxima_ = reinterpret_cast<float*>(workspace + at_.maxima);
    totals_ = reinterpret_cast<float*>(workspace + at_.totals);
  }

  void run(const float* q, int64_t q_stride, float* out, int64_t out_stride) {
    begin(q, q_stride);
    const int64_t last_position = first_position_ + rows_ - 1;
    for (int b = 0; b < head_.block_count;) {
      count_ = 0;
      for (; b < head_.block_count && count_ < kSpanBlocks; ++b) {
        const KvBlock& block = head_.blocks[b];
        if (block_matters(head_.span, block.start, first_position_, last_position)) {
          starts_[count_] = block.start;
          read_block(block, count_++);
        }
      }
      if (count_ == 0) {
        break;
      }
      for (int i = 0; i < at_.row_tiles; i += 2) {
        score(i);
        weigh(i);
        sum_values(i);
      }
    }
    finish(out, out_stride);
  }

 private:
  void begin(const float* q, int64_t q_stride) {
    const int dim = head_.head_dim;
    for (int row = 0; row < at_.row_tiles * kTile; ++row) {
      const float* from =
          q + (row / head_.group) * q_stride + static_cast<int64_t>(row % head_.group) * dim;
      for (int s = 0; s < at_.steps; ++s) {
        auto part = [&](int d) {
          int left = row < at_.n ? dim - d : 0;
          return left >= kLanes ? load(from + d) : left > 0 ? load_some(from + d, left) : zero();
        };
        Cut cut = cut_row(part(s * kDepth), part(s * kDepth + kLanes));
        uint16_t* to = tile(queries_, (row / kTile) * at_.steps + s) + (row % kTile) * kDepth;
        _mm512_store_si512(to, cut.high);
        _mm512_store_si512(to + at_.queries_half, cut.low);
      }
      maxima_[row] = -kInfinity;
      totals_[row] = 0;
    }
    memset(outputs_, 0, sizeof(float) * at_.row_tiles * kTile * head_.value_width);
  }

  void read_block(const KvBlock& block, int index) {
    using Bits = typename T::Bits;
    uint16_t* keys = tile(keys_, static_cast<int64_t>(index) * at_.steps * 2);
    key_tiles<T>(
        reinterpret_cast<const Bits*>(block.data + head_.key_offset),
        head_.head_dim,
        keys,
        keys + at_.keys_half);
    uint16_t* values = tile(values_, static_cast<int64_t>(index) * at_.value_columns);
    value_tiles<T>(
        reinterpret_cast<const Bits*>(block.data + head_.value_offset), head_.value_width, values);
  }

  // Row tiles i and i + 1 (if there) against the blocks at hand.
  bool paired(int i) const {
    return i + 1 < at_.row_tiles;
  }
  // Blocks from here on are in the future of all rows of the pair.
  int blocks_for(int i) const {
    int last_row = (i + 2) * kTile - 1;
    last_row = last_row < at_.n ? last_row : at_.n - 1;
    int64_t latest = first_position_ + last_row / head_.group;
    int blocks = count_;
    while (blocks > 0 && starts_[blocks - 1] > latest) {
      --blocks;
    }
    return blocks;
  }

  Left left_tiles(uint16_t* tiles, int64_t half, int i, int64_t per_row) const {
    uint16_t* first_row = tile(tiles, i * per_row);
    uint16_t* second_row = tile(tiles, (i + 1) * per_row);
    return {{first_row, second_row}, {first_row + half, second_row + half}, kTileNumbers};
  }

  void score(int i) {
    Left a = left_tiles(queries_, at_.queries_half, i, at_.steps);
    for (int b = 0; b < blocks_for(i); ++b) {
      uint16_t* first_group = tile(keys_, static_cast<int64_t>(b) * at_.steps * 2);
      uint16_t* second_group = tile(first_group, 1);
      Right keys = {
          {first_group, second_group},
          {first_group + at_.keys_half, second_group + at_.keys_half},
          2 * kTileNumbers};
      float* c = scores_ + static_cast<int64_t>(i) * kTile * kSpan + b * kKvBlock;
      if (paired(i)) {
        multiply<2, 2, false, kKeyTerms>(a, keys, at_.steps, c, kSpan);
      } else {
        multiply<1, 2, false, kKeyTerms>(a, keys, at_.steps, c, kSpan);
      }
    }
  }

  // Scores to weights, as left tiles [row tile][block].
  void weigh(int i) {
    const int blocks = blocks_for(i);
    const int width = head_.value_width;
    int end = (i + 2) * kTile;
    end = end < at_.n ? end : at_.n;
    for (int row = i * kTile; row < end && blocks > 0; ++row) {
      const int64_t position = first_position_ + row / head_.group;
      float* score = scores_ + static_cast<int64_t>(row) * kSpan;
      for (int b = 0; b < blocks; ++b) {
        hide(score + b * kKvBlock, visible_bits(head_.span, starts_[b], position));
      }
      const bool visible = raise_maximum(
          score,
          blocks * kKvBlock,
          maxima_[row],
          totals_[row],
          outputs_ + static_cast<int64_t>(row) * width,
          width);
      F parts = zero();
      for (int b = 0; b < blocks; ++b) {
        uint16_t* to = tile(weights_, (row / kTile) * kSpanBlocks + b) + (row % kTile) * kDepth;
        F left = zero();
        F right = zero();
        if (visible) {
          left = exp(sub(load(score + b * kKvBlock), splat(maxima_[row])));
          right = exp(sub(load(score + b * kKvBlock + kLanes), splat(maxima_[row])));
          parts = add(parts, add(left, right));
        }
        _mm512_store_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(right, left)));
      }
      totals_[row] += sum(parts);
    }
  }

  void sum_values(int i) {
    const int blocks = blocks_for(i);
    if (blocks == 0) {
      return;
    }
    const int64_t width = head_.value_width;
    Left a = left_tiles(weights_, 0, i, kSpanBlocks);
    for (int n = 0; n < at_.value_columns; n += 2) {
      uint16_t* first_column = tile(values_, n);
      uint16_t* second_column = tile(values_, n + 1);
      Right values = {
          {first_column, second_column},
          {},
          static_cast<int64_t>(at_.value_columns) * kTileNumbers};
      float* c = outputs_ + i * kTile * width + n * kTile;
      bool two_columns = n + 1 < at_.value_columns;
      if (paired(i) && two_columns) {
        multiply<2, 2, true, 1>(a, values, blocks, c, width);
      } else if (paired(i)) {
        multiply<2, 1, true, 1>(a, values, blocks, c, width);
      } else if (two_columns) {
        multiply<1, 2, true, 1>(a, values, blocks, c, width);
      } else {
        multiply<1, 1, true, 1>(a, values, blocks, c, width);
      }
    }
  }

  void finish(float* out, int64_t out_stride) {
    for (int row = 0; row < at_.n; ++row) {
      F factor = splat(1.0f / totals_[row]);
      const float* from = outputs_ + static_cast<int64_t>(row) * head_.value_width;
      float* to = out + (row / head_.group) * out_stride +
                  static_cast<int64_t>(row % head_.group) * head_.head_dim;
      for_vectors(head_.head_dim, [&](int64_t j, int count) {
        store_n(to + j, mul(load_n(from + j, count), factor), count);
      });
    }
  }

  const AttentionHead& head_;
  const int rows_;
  const int64_t first_position_;
  const TileWorkspace at_;
  uint16_t* queries_;
  uint16_t* keys_;
  uint16_t* values_;
  uint16_t* weights_;
  float* scores_;
  float* outputs_;
  float* maxima_;
  float* totals_;
  int count_ = 0;  // blocks at hand
  int64_t starts_[kSpanBlocks] = {};
};

void attend_rows_tiles(
    const AttentionHead& head,
    const float* q,
    int64_t q_stride,
    int rows,
    int64_t first_position,
    float* out,
    int64_t out_stride,
    std::byte* workspace) {
  if (head.type == KvType::f32) {  // whoever keeps f32 wants its precision
    return attend_rows(head, q, q_stride, rows, first_position, out, out_stride, workspace);
  }
  const TileConfig config;
  _tile_loadconfig(&config);
  if (head.type == KvType::f16) {
    TileRows<StoredF16, 3>(head, rows, first_position, workspace).run(q, q_stride, out, out_stride);
  } else {
    TileRows<StoredBf16, 2>(head, rows, first_position, workspace)
        .run(q, q_stride, out, out_stride);
  }
  _tile_release();
}

size_t tiles_workspace(const AttentionHead& head, int rows) {
  return head.type == KvType::f32 ? rows_workspace(head, rows)
                                  : static_cast<size_t>(TileWorkspace(head, rows).end);
}

constexpr AttentionOps kTileOps = {
    store_rows, attend_row, merge_parts, attend_rows_tiles, tiles_workspace};

}  // namespace

const AttentionOps& attention_ops_amx() {
  return kTileOps;
}

}  // namespace quince::kernels
