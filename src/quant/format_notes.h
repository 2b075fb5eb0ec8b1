// Counts the matrices whose file format is not the one they are computed in, for the lines that a
// user sees after loading.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "quant/matrix_source.h"
#include "quant/matrix_weight.h"

namespace quince {

class FormatNotes {
 public:
  void add(const MatrixSource& source, const MatrixWeight& held);
  // "7 Q6_K matrices held as 8-bit g32: each number within 1/510 of its group's range"
  std::vector<std::string> lines() const;

 private:
  std::map<std::pair<std::string, std::string>, int> counts_;  // (file format, held as) -> matrices
};

}  // namespace quince
