#pragma once
// What cuda_pass_bench can measure, and which of it a command line asks for.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.hpp"

namespace gradvane::bench {

/// sparse_rows: as an embedding's gradient, one row of kSparseRow elements in ten is zero.
/// Those with NaN are uniform while results are checked, and have it from the first timed read on: in all elements, in each
/// second one, or in each second row of kSparseRow.
enum class Data { uniform, half_zero, sparse_rows, half_subnormal, all_nan, half_nan, nan_rows };
inline constexpr std::int64_t kSparseRow = 768;
[[nodiscard]] std::string_view name(Data data);

struct Case {
  std::string shape;
  kernels::DType dtype = kernels::DType::f32;
  Data data = Data::uniform;
  int offset = 0;  ///< elements between a boundary of 512 bytes and each tensor
  std::vector<std::int64_t> numels;

  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] std::int64_t bytes() const { return numel() * size_in_bytes(dtype); }
  /// The part of a JSON object that says which case it is, without braces.
  [[nodiscard]] std::string json() const;
};

struct BenchOptions {
  std::vector<Case> cases;
  double seconds = 0.6;  ///< for the timed rounds of one case
  int device = 0;
  bool list = false;
  bool help = false;
};

[[nodiscard]] std::string usage();

/// Throws std::invalid_argument, and says what is allowed.
[[nodiscard]] BenchOptions parse_options(const std::vector<std::string>& arguments);

/// The case with the sizes of all its tensors, as one JSON object: for torch_rivals.py.
[[nodiscard]] std::string describe(const Case& which);

}  // namespace gradvane::bench
