// The command line: one subcommand, one file. Prints errors and decides the exit status (2: the
// user can mend it, 1: our fault, 130: interrupted, 141: nobody reads our output any more).
#pragma once

#include <string_view>

namespace quince::cli {

std::string_view version();  // "0.1.0"

int main(int argc, char** argv);

}  // namespace quince::cli
