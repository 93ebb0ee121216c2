#pragma once
// The statistics tests (pass_statistics_cases.cpp) are linked into one program for each implementation
// of the pass, which says here how to use it.
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/tensor_stats.hpp"
#include "tests/kernels/tensor_data.hpp"

namespace gradvane::kernels::test {

struct PassUnderTest {
  std::string name;
  std::string missing = {};  ///< why it cannot be had here; then its tests skip
  bool required = false;     ///< or fail
  std::function<TensorStats(const TensorData&)> read = {};  ///< one tensor, alone
  std::int64_t run_bytes = 2048;
  bool any_address = true;    ///< also one that is no multiple of the element
  bool any_alignment = true;  ///< the same bits at every address
  bool takes_large_tensors = true;
};
inline void PrintTo(const PassUnderTest& pass, std::ostream* out) { *out << pass.name; }

/// Of this program.
std::vector<PassUnderTest> passes_under_test();

/// Counts, extrema and the index exactly; sums within the bound of the pass's order.
void expect_agrees(const TensorStats& actual, const TensorData& tensor);

}  // namespace gradvane::kernels::test
