// y[m, rows] = x[m, columns] * W^T for packed weights, called by every member of a Team at once.
// Activations are prepared once per layer input (quantized to 8 bits per 32 columns, rounded to
// bf16, split in two bf16, or left f32: the kernel says which it wants for a given matrix and row
// count) and shared by all matrices that read them. A row of y depends on its own row of x alone,
// and on m only through row_kind(); never on the team's size. The instruction set is chosen once,
// from CPUID and the OS (kernels/cpu.h). No MLX.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/packed.h"

namespace quince::kernels {

enum class RowKind : uint8_t { f32, bf16, int8, bf16_pair };

// Prepared activations in caller-owned, 64-byte aligned memory of prepared_bytes() bytes.
struct Rows {
  RowKind kind = RowKind::f32;
  int64_t m = 0;  // activation rows
  int64_t k = 0;  // columns
  std::byte* data = nullptr;
};

// What matmul() of this matrix wants for m activation rows. Throws UserError when QUINCE_CPU names
// an instruction set that the machine lacks (as all functions here do).
RowKind row_kind(const PackedMatrix& w, int64_t m);
// For whom all m are to be computed alike: the kind of so many rows serves fewer, too.
constexpr int64_t kManyRows = 1024;
size_t prepared_bytes(RowKind kind, int64_t m, int64_t k);

// Prepares activation rows [first, last) of x (row stride ldx floats). Different ranges may be
// prepared by different threads at once. A row that exists for a moment only can be prepared from a
// buffer of its own: prepare(rows, buffer, 0, i, i + 1).
void prepare(const Rows& rows, const float* x, int64_t ldx, int64_t first, int64_t last);

enum class Store : uint8_t { set, add };

// Every member of the team calls this with the same arguments; output rows are shared out between
// them. All members must have synced after prepare(); y is complete after the next team.sync().
// Several calls may follow each other without a sync, with a team.restart() between them (work is
// shared out by team.next()), when none reads what another writes.
// y: row stride ldy floats. x.kind must be row_kind(w, M) for an M >= x.m.
void matmul(Team& team, const PackedMatrix& w, const Rows& x, float* y, int64_t ldy, Store store);

// Asks memory for the weights that this member will read first when matmul() of m rows begins: for
// a member that has finished another matrix and is going to wait for the others.
void ask_ahead(const Team& team, const PackedMatrix& w, int64_t m);

enum class GateActivation : uint8_t { silu, gelu_tanh, gelu };

struct Gate {
  GateActivation activation = GateActivation::silu;
  const float* bias = nullptr;  // [rows of the matrix]; null: none
};

// For a matrix of two halves, gate and up: activation(gate) * up straight to the prepared rows of
// the next matmul, without a float in memory. Only for kinds and shapes for which can_gate() says
// so; elsewhere matmul(), an activation of elementwise.h and prepare() do the same, as exactly.
// out: all of its columns and rows are written; complete after the next team.sync().
bool can_gate(const PackedMatrix& gate_up, const Rows& x, RowKind out);
void matmul_gated(
    Team& team, const PackedMatrix& gate_up, const Rows& x, const Gate& gate, const Rows& out);

}  // namespace quince::kernels
