// The execution of a NativeStep by a team. Private to native_step.cpp and native_run*.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/native_step.h"

namespace quince {

// Rows are shared out, and worked on, in such groups when there are many.
constexpr int64_t kRowGroup = 16;

// Where the rows of the stack live. One for all members when they share the rows out, one a member
// when each does everything for itself.
struct RowRegion {
  float* x = nullptr;          // [m, hidden] residual stream
  float* attended = nullptr;   // [m, heads * head_dim]
  float* activated = nullptr;  // [m, intermediate], rows activated_stride apart
  int64_t activated_stride = 0;
  float* rotations = nullptr;     // [ropes, m, 2, rotation_half]: cosines, sines
  std::byte* prepared = nullptr;  // matmul inputs
  // Of this member always:
  float* h = nullptr;            // [hidden] a row's norm, on its way to be prepared
  std::byte* scratch = nullptr;  // attention
};

// A linear's input in every form that its parts want.
struct PreparedRows {
  static constexpr int kMost = 4;
  int count = 0;
  kernels::Rows rows[kMost];
  const kernels::Rows& of(kernels::RowKind kind) const;
};

class StepRun {
 public:
  StepRun(
      const NativeStep& step,
      Workspace& workspace,
      int team_size,
      const int32_t* tokens,
      int64_t token_stride,
      float* logits);

  // The whole step, by one member; all members call it.
  void member(Team& team);

 private:
  struct Member;       // what one member carries through the step
  struct Delta {       // what the residual stream is about to receive: [m, hidden] in output_
    bool any = false;  // false: it has received all
    const std::vector<float>* bias = nullptr;  // empty: none
    const std::vector<float>* norm = nullptr;  // empty: none
  };

  void lay_out(Workspace& workspace, int team_size);
  size_t prepared_room(const NativeLinear& linear, int64_t m) const;
  size_t prepared_room(int64_t m) const;  // of every linear
  kernels::RowKind row_kind(const kernels::PackedMatrix& matrix, int64_t m) const;
  PreparedRows forms(const NativeLinear& linear, int64_t m, std::byte* room) const;
  void share(Member& me, int64_t rows) const;
  void sync_rows(Member& me) const;

  void embed(Member& me) const;
  void layer(Member& me, size_t index, Delta& delta) const;
  void add_delta(Member& me, const Delta& delta, int64_t row) const;
  PreparedRows enter(
      Member& me,
      const Delta& delta,
      const std::vector<float>& norm,
      const NativeLinear& linear) const;
  void multiply(
      Member& me,
      const NativeLinear& linear,
      const PreparedRows& rows,
      float* y,
      int64_t ldy,
      kernels::Store store,
      const kernels::PackedMatrix& next) const;
  Delta project(
      Member& me,
      const NativeLinear& linear,
      const std::vector<float>& norm,
      const PreparedRows& rows,
      const kernels::PackedMatrix& next) const;
  PreparedRows gate(Member& me, const NativeLayer& layer, const PreparedRows& rows) const;
  void activate(
      const NativeLayer& layer, int64_t row, int64_t first, int64_t last, float* out) const;
  PreparedRows activation(Member& me, const NativeLayer& layer) const;
  void keep_logit_rows(Member& me) const;
  void head(Member& me, const Delta& delta) const;

  // native_run_attention.cpp
  kernels::AttentionHead attention_head(const AttentionUnit& unit, size_t index) const;
  size_t query_bytes(int rows) const;  // of a unit, up to whole cache lines
  void turn(Member& me, const NativeLayer& layer, float* x, int64_t row, bool query) const;
  void fetch(const NativeLayer& layer, int64_t row, int64_t first, int64_t n, float* to) const;
  void fetch_queries(
      Member& me, size_t index, const AttentionUnit& unit, int64_t row, float* to) const;
  void store_keys(Member& me, size_t index) const;
  void attend(Member& me, size_t index) const;
  void attend_single(Member& me, size_t index, const AttentionUnit& unit) const;
  void attend_many(Member& me, size_t index, const AttentionUnit& unit) const;
  PreparedRows attended(Member& me, size_t index) const;
  void merge_row(Member& me, size_t index, int64_t row) const;

  const NativeStep& step_;
  const NativeModel& model_;
  const NativeWeights& weights_;
  const DecoderSpec& spec_;
  const kernels::RowOps& ops_;
  const kernels::AttentionOps& attention_ops_;
  const int32_t* tokens_;
  const int64_t token_stride_;
  float* logits_;

  const int64_t m_;   // rows of the step
  const bool alone_;  // each member does rows for itself
  const int64_t qkv_width_;
  const int64_t attended_width_;
  int64_t rotation_half_ = 0;
  std::vector<RowRegion> regions_;  // by member
  float* qkv_ = nullptr;            // [m, qkv_width]
  float* output_ = nullptr;         // [m, hidden] of o_proj, later of down_proj
  float* gate_up_ = nullptr;        // [m, 2 * intermediate]
  float* partials_ = nullptr;
  float* kept_x_ = nullptr;         // [logit rows, hidden]
  float* kept_attended_ = nullptr;  // [logit rows, heads * head_dim]
};

struct StepRun::Member {
  Team& team;
  RowRegion at;
  int64_t m = 0;      // rows in hand: all, or from the last layer's attention on the wanted ones
  int64_t first = 0;  // this member's share of them
  int64_t last = 0;
  bool kept = false;  // rows are numbered among the wanted ones; their attention is merged
};

}  // namespace quince
