#pragma once
// Data whose statistics are known without reading it: every tensor is a piece of one repeated pattern,
// whose elements are made from their sign, exponent and mantissa.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/kernels/cuda_bench_cases.hpp"
#include "kernels/dtype.hpp"
#include "kernels/tensor_stats.hpp"

namespace gradvane::bench {

class Pattern {
 public:
  static constexpr std::int64_t kElements = 1 << 16;

  Pattern(kernels::DType dtype, Data data);

  /// The bits of all elements, as a device is to see them.
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] std::uint32_t bits(std::int64_t position) const;
  /// Where the pattern is entered by a tensor; so that tensors of one size differ.
  [[nodiscard]] static std::int64_t start(std::size_t tensor) {
    return static_cast<std::int64_t>(tensor * 40503 % kElements);
  }
  /// Of `numel` elements from position `start` on; the sums exact but for fp64's rounding.
  [[nodiscard]] kernels::TensorStats expect(std::int64_t start, std::int64_t numel) const;

 private:
  struct Element {
    std::uint32_t bits = 0;
    double value = 0;
    bool subnormal = false;
  };
  static void add(const Element& element, kernels::TensorStats& stats);

  std::vector<Element> elements_;
  kernels::TensorStats whole_;  ///< of all elements once
  std::vector<std::byte> bytes_;
};

/// An element that is overwritten to see whether it is found.
struct Injection {
  std::size_t tensor = 0;
  std::int64_t index = 0;
  kernels::NonfiniteKind kind = kernels::NonfiniteKind::nan;
};

/// NaN in the first tensor and in one of the first half, -Inf in the middle one, +Inf in the last.
[[nodiscard]] std::vector<Injection> injections(const Case& which);
[[nodiscard]] std::uint32_t bits_of(kernels::NonfiniteKind kind, kernels::DType dtype);

/// What a read of all tensors must find.
struct Expectation {
  std::vector<kernels::TensorStats> tensors;
  /// Where an element was overwritten: the extremes may have gone with it.
  std::vector<bool> injected;

  Expectation(const Case& which, const Pattern& pattern);
  void inject(const Pattern& pattern, const Injection& injection);
  /// L2 norm of the finite elements.
  [[nodiscard]] double norm() const;
  /// Empty if `found` agrees, else what does not. Counts and extremes must be equal, sums close.
  [[nodiscard]] std::string difference(std::size_t tensor, const kernels::TensorStats& found) const;
};

[[nodiscard]] bool close(double found, double expected, double relative);

}  // namespace gradvane::bench
