// attend_rows on AMX tiles (16 x 16 sums of bf16 pairs). Tiles multiply for some rows while vectors
// turn the scores of other rows into weights.
// For the scores, which go through an
// exponential, queries and keys are cut into two bf16 numbers, high + low, and three of the four
// products are summed: nearly f32 arithmetic (keys that are bf16 already need two products only).
// The weighted sum of values takes weights and values as plain bf16: its error averages out over
// positions and is that of the result's own rounding, since the next matrix reads it as bf16 or 8
// bits.
#include "kernels/attention_impl.h"
#include "kernels/attention_tiles_amx.h"

namespace quince::kernels {

namespace {

constexpr float kLog2E = 1.44269504089f;

// What weights may add up to before a row's scores are measured from a larger one.
constexpr float kRoom = 0x1p40f;

// e^score * 2^-shift, relative error 8e-5 (minimax over a power of two): the bf16 that becomes of
// it has 2e-3. 0 when below the smallest float (-infinity included; such numbers would take 60
// times as long), NaN for NaN.
inline F weight(F score, F shift) {
  const F x = _mm512_fmsub_ps(score, splat(kLog2E), shift);
  const __mmask16 large = _mm512_cmp_ps_mask(x, splat(-126.0f), _CMP_NLT_UQ);
  const F r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // x - floor(x)
  F p = fma(splat(0.078024552046452f), r, splat(0.226067184589537f));
  p = fma(p, r, splat(0.695833491232409f));
  p = fma(p, r, splat(0.999925227869855f));
  return _mm512_maskz_scalef_ps(large, p, x);  // p * 2^floor(x)
}

// Where things lie in the workspace, in bytes.
struct TileWorkspace {
  int n;  // rows * group
  int row_tiles;
  int steps;                        // depth steps over head_dim
  int value_columns;                // tiles over value_width
  int64_t queries, keys;            // high and, behind it, low
  int64_t queries_half, keys_half;  // bf16 numbers in each
  int64_t values, weights;
  int64_t scores, outputs, maxima, totals, offsets, block, end;

  // Scores and weights are kept of the pairs of row tiles that are being worked on.
  static constexpr int kRing = 4;  // row tiles

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
    scores = weights + kRing * kSpanBlocks * kTileBytes;
    int64_t padded = static_cast<int64_t>(row_tiles) * kTile;
    outputs = scores + kRing * kTile * kSpan * 4;
    maxima = outputs + padded * head.value_width * 4;
    totals = maxima + padded * 4;
    offsets = totals + padded * kLanes * 4;
    block = offsets + padded * 4;  // one block of keys or values as floats
    end = block + static_cast<int64_t>(head.value_width) * kKvBlock * 4;
  }
};

// Work on one piece of attend_rows; the pieces share this.
template <int kKeyTerms>
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
    offsets_ = reinterpret_cast<int32_t*>(workspace + at_.offsets);
    block_ = reinterpret_cast<float*>(workspace + at_.block);
  }

  void run(const float* q, int64_t q_stride, float* out, int64_t out_stride) {
    begin(q, q_stride);
    const int64_t last_position = first_position_ + rows_ - 1;
    bool first = true;
    for (int b = 0; b < head_.block_count;) {
      count_ = 0;
      for (const int end = span_end(head_, b); b < end; ++b) {
        const KvBlock& block = head_.blocks[b];
        if (block_matters(head_.span, block.start, first_position_, last_position)) {
          starts_[count_] = block.start;
          read_block(block, count_++);
        }
      }
      if (count_ == 0) {
        continue;
      }
      span(first);
      first = false;
    }
    finish(out, out_stride);
  }

 private:
  void begin(const float* q, int64_t q_stride) {
    const int dim = head_.head_dim;
    int offset = 0;  // of the row's position
    int query = 0;   // among those of the position
    for (int row = 0; row < at_.row_tiles * kTile; ++row) {
      const float* from = q + offset * q_stride + static_cast<int64_t>(query) * dim;
      if (is_coded(head_.key_type) && row < at_.n) {
        memcpy(block_, from, sizeof(float) * static_cast<size_t>(dim));
        turn_row(block_, dim);
        from = block_;
      }
      for (int s = 0; s < at_.steps; ++s) {
        auto part = [&](int d) {
          int left = row < at_.n ? dim - d : 0;
          return left >= kLanes ? load(from + d) : left > 0 ? load_some(from + d, left) : zero();
        };
        const Cut cut = cut_pairs(part(s * kDepth), part(s * kDepth + kLanes));
        uint16_t* to = tile(queries_, (row / kTile) * at_.steps + s) + (row % kTile) * kDepth;
        _mm512_store_si512(to, cut.high);
        _mm512_store_si512(to + at_.queries_half, cut.low);
      }
      maxima_[row] = -kInfinity;
      offsets_[row] = offset;
      if (++query == head_.group) {
        query = 0;
        ++offset;
      }
    }
    memset(totals_, 0, sizeof(float) * at_.row_tiles * kTile * kLanes);
  }

  template <typename T>
  void read_keys(const void* stored, int index) {
    uint16_t* keys = tile(keys_, static_cast<int64_t>(index) * at_.steps * 2);
    key_tiles<T>(
        static_cast<const typename T::Bits*>(stored), head_.head_dim, keys, keys + at_.keys_half);
  }

  template <typename T>
  void read_values(const void* stored, int index) {
    value_tiles<T>(
        static_cast<const typename T::Bits*>(stored),
        head_.value_width,
        tile(values_, static_cast<int64_t>(index) * at_.value_columns));
  }

  void read_block(const KvBlock& block, int index) {
    const std::byte* keys = block.data + head_.key_offset;
    const std::byte* values = block.data + head_.value_offset;
    const int width = head_.value_width;
    switch (head_.key_type) {
      case KvType::f16:
        read_keys<StoredF16>(keys, index);
        break;
      case KvType::bf16:
        read_keys<StoredBf16>(keys, index);
        break;
      default:
        read_keys<StoredF32>(
            keys_as_floats(head_.key_type, keys, head_.head_dim, width, block_), index);
    }
    switch (head_.value_type) {
      case KvType::f16:
        return read_values<StoredF16>(values, index);
      case KvType::bf16:
        return read_values<StoredBf16>(values, index);
      default:
        return read_values<StoredF32>(
            values_as_floats(head_.value_type, values, width, block_), index);
    }
  }

  // Row tiles i and i + 1 (if there) against the blocks at hand.
  struct Pair {
    int i = 0;
    int blocks = 0;       // the rest is in the future of all rows
    uint32_t partly = 0;  // bit b: not all rows see all of block b
    int row = 0;          // the next one to be weighed
    int end = 0;          // behind the last row
    int credit = 0;       // towards the next row, of `price`
    int price = 1;
  };

  bool paired(int i) const {
    return i + 1 < at_.row_tiles;
  }

  Pair pair(int i) const {
    Pair p;
    p.i = i;
    p.row = i * kTile;
    p.end = (i + 2) * kTile < at_.n ? (i + 2) * kTile : at_.n;
    const int64_t earliest = first_position_ + offsets_[p.row];
    const int64_t latest = first_position_ + offsets_[p.end - 1];
    p.blocks = count_;
    while (p.blocks > 0 && starts_[p.blocks - 1] > latest) {
      --p.blocks;
    }
    for (int b = 0; b < p.blocks; ++b) {
      const uint32_t visible = visible_bits(head_.span, starts_[b], earliest) &
                               visible_bits(head_.span, starts_[b], latest);
      p.partly |= static_cast<uint32_t>(visible != ~0u) << b;
    }
    return p;
  }

  // All rows against the blocks at hand. While a pair of row tiles is multiplied with the keys, and
  // the one two before with the values, the one between them is weighed. first: every row sees some
  // of these blocks, and has no output yet.
  void span(bool first) {
    Pair summing;
    Pair weighing;
    for (int i = 0; i < at_.row_tiles + 4; i += 2) {
      const Pair next = i < at_.row_tiles ? pair(i) : Pair{};
      const int values = (at_.value_columns + 1) / 2 * summing.blocks;
      weighing.price = kKeyTerms * at_.steps * next.blocks + values;
      score(next, weighing);
      if (first) {
        sum_values<false>(summing, weighing);
      } else {
        sum_values<true>(summing, weighing);
      }
      while (weighing.row < weighing.end && weighing.blocks > 0) {
        weigh_row(weighing);
      }
      summing = weighing;
      weighing = next;
    }
  }

  // One more round of products has begun: time for as many rows in proportion.
  void meanwhile(Pair& weighing) {
    if (weighing.blocks == 0) {
      return;
    }
    weighing.credit += 2 * kTile;
    while (weighing.credit >= weighing.price && weighing.row < weighing.end) {
      weighing.credit -= weighing.price;
      weigh_row(weighing);
    }
  }

  float* row_scores(int row) const {
    return scores_ + row % (TileWorkspace::kRing * kTile) * kSpan;
  }

  Left left_tiles(uint16_t* tiles, int64_t half, int i, int64_t per_row) const {
    uint16_t* first_row = tile(tiles, i * per_row);
    uint16_t* second_row = tile(tiles, (i + 1) * per_row);
    return {{first_row, second_row}, {first_row + half, second_row + half}, kTileNumbers};
  }

  void score(const Pair& p, Pair& weighing) {
    Left a = left_tiles(queries_, at_.queries_half, p.i, at_.steps);
    for (int b = 0; b < p.blocks; ++b) {
      uint16_t* first_group = tile(keys_, static_cast<int64_t>(b) * at_.steps * 2);
      uint16_t* second_group = tile(first_group, 1);
      Right keys = {
          {first_group, second_group},
          {first_group + at_.keys_half, second_group + at_.keys_half},
          2 * kTileNumbers};
      float* c = row_scores(p.i * kTile) + b * kKvBlock;
      auto other = [&] { meanwhile(weighing); };
      if (paired(p.i)) {
        multiply<2, 2, false, kKeyTerms>(a, keys, at_.steps, c, kSpan, other);
      } else {
        multiply<1, 2, false, kKeyTerms>(a, keys, at_.steps, c, kSpan, other);
      }
    }
  }

  // A row's scores to weights, in left tiles [row tile][block].
  void weigh_row(Pair& p) {
    const int row = p.row++;
    float* score = row_scores(row);
    for (uint32_t left = p.partly; left != 0; left &= left - 1) {
      const int b = __builtin_ctz(left);
      hide(score + b * kKvBlock, starts_[b], first_position_ + offsets_[row]);
    }
    uint16_t* to =
        tile(weights_, row / kTile % TileWorkspace::kRing * kSpanBlocks) + row % kTile * kDepth;
    if (maxima_[row] == -kInfinity) {
      maxima_[row] = highest(score, p.blocks);
      if (maxima_[row] == -kInfinity) {  // it sees nothing yet
        for (int b = 0; b < p.blocks; ++b) {
          _mm512_store_si512(to + b * kTileNumbers, _mm512_setzero_si512());
        }
        return;
      }
    }
    F parts = put_weights(score, p.blocks, row, to);
    if (_mm512_cmp_ps_mask(parts, splat(kRoom), _CMP_GT_OQ) != 0) {
      raise(row, highest(score, p.blocks));
      parts = put_weights(score, p.blocks, row, to);
    }
    store(totals_ + row * kLanes, parts);
  }

  static float highest(const float* score, int blocks) {
    F top = max(load(score), load(score + kLanes));
    for (int b = 1; b < blocks; ++b) {
      F both = max(load(score + b * kKvBlock), load(score + b * kKvBlock + kLanes));
      top = max(top, both);
    }
    return largest(top);
  }

  // The row's totals with these weights.
  F put_weights(const float* score, int blocks, int row, uint16_t* to) const {
    const F shift = splat(maxima_[row] * kLog2E);
    F parts = load(totals_ + row * kLanes);
    for (int b = 0; b < blocks; ++b) {
      const F left = weight(load(score + b * kKvBlock), shift);
      const F right = weight(load(score + b * kKvBlock + kLanes), shift);
      parts = add(parts, add(left, right));
      _mm512_store_si512(
          to + b * kTileNumbers, __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(right, left)));
    }
    return parts;
  }

  void hide(float* score, int64_t start, int64_t position) const {
    const uint32_t visible = visible_bits(head_.span, start, position);
    const F hidden = splat(-kInfinity);
    const auto low = static_cast<__mmask16>(visible);
    const auto high = static_cast<__mmask16>(visible >> kLanes);
    store(score, _mm512_mask_mov_ps(hidden, low, load(score)));
    store(score + kLanes, _mm512_mask_mov_ps(hidden, high, load(score + kLanes)));
  }

  // What the row has so far, measured from a larger score.
  void raise(int row, float highest) {
    const float factor = first(exp(splat(maxima_[row] - highest)));
    scale_floats(totals_ + row * kLanes, kLanes, factor);
    scale_floats(
        outputs_ + static_cast<int64_t>(row) * head_.value_width, head_.value_width, factor);
    maxima_[row] = highest;
  }

  template <bool kAdd>
  void sum_values(const Pair& p, Pair& weighing) {
    if (p.blocks == 0) {
      return;
    }
    const int64_t width = head_.value_width;
    Left a = left_tiles(weights_, 0, p.i % TileWorkspace::kRing, kSpanBlocks);
    auto other = [&] { meanwhile(weighing); };
    for (int n = 0; n < at_.value_columns; n += 2) {
      uint16_t* first_column = tile(values_, n);
      uint16_t* second_column = tile(values_, n + 1);
      Right values = {
          {first_column, second_column},
          {},
          static_cast<int64_t>(at_.value_columns) * kTileNumbers};
      float* c = outputs_ + p.i * kTile * width + n * kTile;
      bool two_columns = n + 1 < at_.value_columns;
      if (paired(p.i) && two_columns) {
        multiply<2, 2, kAdd, 1>(a, values, p.blocks, c, width, other);
      } else if (paired(p.i)) {
        multiply<2, 1, kAdd, 1>(a, values, p.blocks, c, width, other);
      } else if (two_columns) {
        multiply<1, 2, kAdd, 1>(a, values, p.blocks, c, width, other);
      } else {
        multiply<1, 1, kAdd, 1>(a, values, p.blocks, c, width, other);
      }
    }
  }

  void finish(float* out, int64_t out_stride) {
    int query = 0;
    for (int row = 0; row < at_.n; ++row) {
      F factor = splat(1.0f / sum(load(totals_ + row * kLanes)));
      const float* from = outputs_ + static_cast<int64_t>(row) * head_.value_width;
      float* to = out + offsets_[row] * out_stride + static_cast<int64_t>(query) * head_.head_dim;
      for_vectors(head_.head_dim, [&](int64_t j, int count) {
        store_n(to + j, mul(load_n(from + j, count), factor), count);
      });
      if (is_coded(head_.value_type)) {
        turn_row_back(to, head_.head_dim);
      }
      query = query + 1 == head_.group ? 0 : query + 1;
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
  float* totals_;     // [row][16 lanes], to be added up
  int32_t* offsets_;  // of a row's position from the first one
  float* block_;
  int count_ = 0;  // blocks at hand
  int64_t starts_[kSpanBlocks] = {};
};

// Whoever keeps f32 wants its precision.
bool keeps_f32(const AttentionHead& head) {
  return head.key_type == KvType::f32 || head.value_type == KvType::f32;
}

void attend_rows_tiles(
    const AttentionHead& head,
    const float* q,
    int64_t q_stride,
    int rows,
    int64_t first_position,
    float* out,
    int64_t out_stride,
    std::byte* workspace) {
  if (keeps_f32(head)) {
    return attend_rows(head, q, q_stride, rows, first_position, out, out_stride, workspace);
  }
  const TileConfig config;
  _tile_loadconfig(&config);
  if (head.key_type == KvType::bf16) {  // exact in one part
    TileRows<2>(head, rows, first_position, workspace).run(q, q_stride, out, out_stride);
  } else {
    TileRows<3>(head, rows, first_position, workspace).run(q, q_stride, out, out_stride);
  }
  _tile_release();
}

size_t tiles_workspace(const AttentionHead& head, int rows) {
  return keeps_f32(head) ? rows_workspace(head, rows)
                         : static_cast<size_t>(TileWorkspace(head, rows).end);
}

constexpr AttentionOps kTileOps = {
    store_rows, attend_row, merge_parts, attend_rows_tiles, tiles_workspace};

}  // namespace

const AttentionOps& attention_ops_amx() {
  return kTileOps;
}

}  // namespace quince::kernels
