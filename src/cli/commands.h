// The table of subcommands. A command adds its flags to a CLI11 App and returns what is to run
// after the flags were read; cli.cpp parses, runs it, and turns exceptions into messages and exit
// statuses.
#pragma once

#include <functional>
#include <span>
#include <string_view>

namespace CLI {
class App;
}  // namespace CLI

namespace quince::cli {

// Returns the exit status. May throw: UserError becomes status 2, anything else 1.
using Action = std::function<int()>;

struct Command {
  std::string_view name;
  std::string_view summary;  // one line for `quince --help`
  Action (*add)(CLI::App& app);
};

Action add_run(CLI::App& app);
Action add_serve(CLI::App& app);
Action add_gateway(CLI::App& app);
Action add_key_new(CLI::App& app);
Action add_key_hash(CLI::App& app);
Action add_pull(CLI::App& app);
Action add_list(CLI::App& app);
Action add_inspect(CLI::App& app);
Action add_convert(CLI::App& app);
Action add_bench(CLI::App& app);
Action add_bench_serve(CLI::App& app);
Action add_cache_build(CLI::App& app);
Action add_cache_inspect(CLI::App& app);

std::span<const Command> commands();  // in the order in which help shows them

}  // namespace quince::cli
