// Packs blocks of 16 rows out of the rows of one or several sources.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "kernels/pack_codes.h"
#include "kernels/pack_plan.h"

namespace quince::kernels {

// Which source and which of its rows a row of the stacked matrix is.
struct StackedRows {
  std::span<const PackSource> sources;
  std::vector<int64_t> ends;  // row after the last one of each source

  std::pair<const PackSource*, int64_t> find(int64_t row) const;
};

// One thread's packer: scratch lives as long as its share of the work.
class BlockPacker {
 public:
  BlockPacker(const PackPlan& plan, PackedMatrix::Layout& layout, const StackedRows& rows)
      : plan_(plan), layout_(layout), rows_(rows) {}

  void pack(int64_t block);

 private:
  const std::byte* bytes(int lane) const;  // of a stored row

  // Rows that do not exist repeat the last one: as codes their scales are zero, as numbers nobody
  // reads them.
  struct BlockRows {
    const std::byte* at[kBlockRows];
  };
  BlockRows all_rows() const;

  void keep_codes();
  void mlx_triple();
  void put_mlx(const TensorView& from, int lane, size_t element, int64_t groups, int place);
  void decode_int8();
  void decode_dense();
  void dense();
  void decode();  // the block's rows to floats_
  // Words of 4 bytes, a float or a pair of halves each, to [word][16].
  void put_words(const BlockRows& rows, int64_t words);
  void put_halves(int lane, const std::byte* row);
  void put_pairs(int lane, const std::byte* row);

  const PackPlan& plan_;
  PackedMatrix::Layout& layout_;
  const StackedRows& rows_;
  std::byte* out_ = nullptr;  // the block
  int lanes_ = 0;             // rows it has
  const PackSource* source_[kBlockRows];
  int64_t row_[kBlockRows];
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
};

}  // namespace quince::kernels
