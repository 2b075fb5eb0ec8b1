#include "kernels/pack_block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

#include "kernels/pack_vectors.h"

namespace quince::kernels {

std::pair<const PackSource*, int64_t> StackedRows::find(int64_t row) const {
  const auto i =
      static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), row) - ends.begin());
  return {&sources[i], row - (i == 0 ? 0 : ends[i - 1])};
}

void BlockPacker::pack(int64_t block) {
  out_ = layout_.memory.data() + static_cast<size_t>(block) * layout_.block_bytes;
  lanes_ = layout_.block_rows(block);
  for (int lane = 0; lane < lanes_; ++lane) {
    std::tie(source_[lane], row_[lane]) = rows_.find(block * kBlockRows + lane);
  }
  switch (plan_.route) {
    case PackRoute::keep_codes:
      return keep_codes();
    case PackRoute::mlx_triple:
      return mlx_triple();
    case PackRoute::decode_int8:
      return decode_int8();
    case PackRoute::dense:
      return dense();
    case PackRoute::decode_f32:
    case PackRoute::decode_bf16:
      return decode_dense();
  }
}

const std::byte* BlockPacker::bytes(int lane) const {
  return source_[lane]->weight.row(row_[lane]).data();
}

BlockPacker::BlockRows BlockPacker::all_rows() const {
  BlockRows rows;
  for (int lane = 0; lane < kBlockRows; ++lane) {
    rows.at[lane] = bytes(std::min(lane, lanes_ - 1));
  }
  return rows;
}

void BlockPacker::keep_codes() {
  const TensorType type = source_[0]->weight.type;
  const BlockRows rows = all_rows();
  pack_codes(type)(rows.at, layout_.chunks(), out_);
  const UnitScales put = unit_scales(type);
  const size_t unit_bytes = scale_unit_bytes(plan_.scales, plan_.format.biased);
  const int64_t units = layout_.columns / info(type).block;
  for (int lane = 0; lane < lanes_; ++lane) {
    std::byte* to = out_ + layout_.scale_offset;
    for (int64_t unit = 0; unit < units; ++unit, to += unit_bytes) {
      put(rows.at[lane], unit, lane, to);
    }
  }
}

void BlockPacker::mlx_triple() {
  pack_mlx_codes(plan_.format.bits)(all_rows().at, layout_.chunks(), out_);
  const size_t element = plan_.scales == ScalePlan::direct_f32 ? 4 : 2;
  const int64_t groups = layout_.columns / plan_.format.group;
  for (int lane = 0; lane < lanes_; ++lane) {
    put_mlx(*source_[lane]->scales, lane, element, groups, 0);
    put_mlx(*source_[lane]->biases, lane, element, groups, kBlockRows);
  }
}

// One row of scales or biases; widened to f32 when the triple mixes types.
void BlockPacker::put_mlx(
    const TensorView& from, int lane, size_t element, int64_t groups, int place) {
  std::byte* to = out_ + layout_.scale_offset + static_cast<size_t>(place + lane) * element;
  const std::byte* in = nullptr;
  if (static_cast<size_t>(info(from.type).bytes) == element) {
    in = from.row(row_[lane]).data();
  } else {
    floats_.resize(static_cast<size_t>(groups));
    decode_rows(from, row_[lane], 1, floats_.data());
    in = reinterpret_cast<const std::byte*>(floats_.data());
  }
  const size_t unit = 2 * kBlockRows * element;
  for (int64_t g = 0; g < groups; ++g, to += unit, in += element) {
    std::memcpy(to, in, element);
  }
}

void BlockPacker::decode() {
  const auto columns = static_cast<size_t>(layout_.columns);
  floats_.resize(static_cast<size_t>(lanes_) * columns);
  for (int lane = 0; lane < lanes_; ++lane) {
    decode_rows(
        source_[lane]->weight, row_[lane], 1, floats_.data() + static_cast<size_t>(lane) * columns);
  }
}

void BlockPacker::decode_int8() {
  decode();
  const bool exact_power = source_[0]->weight.type == TensorType::mxfp4;
  uint8_t codes[kBlockRows * kChunk] = {};
  for (int64_t chunk = 0; chunk < layout_.chunks(); ++chunk) {
    std::byte* scales = out_ + layout_.scale_offset + static_cast<size_t>(chunk) * kVector;
    for (int lane = 0; lane < lanes_; ++lane) {
      const float scale = quantize_chunk(
          floats_.data() + lane * layout_.columns + chunk * kChunk,
          exact_power,
          codes + lane * kChunk);
      std::memcpy(scales + 4 * lane, &scale, 4);
    }
    pack_bytes(codes, out_ + static_cast<size_t>(chunk) * layout_.chunk_bytes());
  }
}

void BlockPacker::decode_dense() {
  decode();
  const auto columns = static_cast<size_t>(layout_.columns);
  if (layout_.format.kind == PackedKind::f32) {
    BlockRows rows;
    for (int lane = 0; lane < kBlockRows; ++lane) {
      rows.at[lane] = reinterpret_cast<const std::byte*>(
          floats_.data() + static_cast<size_t>(std::min(lane, lanes_ - 1)) * columns);
    }
    return put_words(rows, layout_.columns);
  }
  halves_.resize(columns);
  for (int lane = 0; lane < lanes_; ++lane) {
    const float* row = floats_.data() + static_cast<size_t>(lane) * columns;
    for (size_t k = 0; k < columns; ++k) {  // exact: see PackRoute::decode_bf16
      halves_[k] = static_cast<uint16_t>(std::bit_cast<uint32_t>(row[k]) >> 16);
    }
    put_pairs(lane, reinterpret_cast<const std::byte*>(halves_.data()));
  }
}

void BlockPacker::dense() {
  switch (layout_.format.kind) {
    case PackedKind::f32:
      return put_words(all_rows(), layout_.columns);
    case PackedKind::f16:
      for (int lane = 0; lane < lanes_; ++lane) {
        put_halves(lane, bytes(lane));
      }
      return;
    default:
      if (layout_.columns % 2 == 0) {
        return put_words(all_rows(), layout_.columns / 2);
      }
      for (int lane = 0; lane < lanes_; ++lane) {
        put_pairs(lane, bytes(lane));
      }
  }
}

void BlockPacker::put_words(const BlockRows& rows, int64_t words) {
  int64_t word = 0;
  for (; word + 4 <= words; word += 4) {
    for (int quad = 0; quad < kBlockRows; quad += 4) {
      Words4 v[4];
      for (int r = 0; r < 4; ++r) {
        v[r] = reinterpret_cast<Words4>(load16(rows.at[quad + r] + 4 * word));
      }
      transpose4(v);
      for (int i = 0; i < 4; ++i) {
        store16(out_ + (word + i) * kVector + 4 * quad, v[i]);
      }
    }
  }
  for (; word < words; ++word) {
    for (int lane = 0; lane < kBlockRows; ++lane) {
      std::memcpy(out_ + word * kVector + 4 * lane, rows.at[lane] + 4 * word, 4);
    }
  }
}

void BlockPacker::put_halves(int lane, const std::byte* row) {
  std::byte* to = out_ + 2 * lane;
  for (int64_t k = 0; k < layout_.columns; ++k) {
    std::memcpy(to + k * kBlockRows * 2, row + 2 * k, 2);
  }
}

void BlockPacker::put_pairs(int lane, const std::byte* row) {
  std::byte* to = out_ + 4 * lane;
  for (int64_t k = 0; k < layout_.columns; k += 2) {
    std::memcpy(to + k / 2 * kVector, row + 2 * k, k + 1 < layout_.columns ? 4 : 2);
  }
}

}  // namespace quince::kernels
