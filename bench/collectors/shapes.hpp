#pragma once
// The shapes of parameters that real models have.
#include <cstdint>
#include <string>
#include <vector>

namespace gradvane::bench {

using Shape = std::vector<std::int64_t>;

struct ModelShapes {
  std::string name;
  std::vector<Shape> params;
  [[nodiscard]] std::int64_t numel() const;
};

[[nodiscard]] ModelShapes gpt2_124m();     ///< 148 tensors, 124.4 M elements
[[nodiscard]] ModelShapes resnet50();      ///< 161 tensors, 25.6 M elements
[[nodiscard]] ModelShapes tiny_tensors();  ///< 10,000 tensors of 16 to 256 elements

}  // namespace gradvane::bench
