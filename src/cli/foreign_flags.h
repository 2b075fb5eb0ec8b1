// Flags of llama-server and mlx_lm.server that `quince serve` has no flag of its own for: each is
// taken with a note where what it asks for is so anyway, or refused with its reason.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace quince::cli {

void add_foreign_serve_flags(CLI::App& app);

}  // namespace quince::cli
