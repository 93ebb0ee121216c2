#pragma once
// What ranks found when they compared their weights.
#include <cstdint>
#include <string>
#include <vector>

namespace gradvane::record {

/// Of ranks that once had the same weights: replicas of a model.
struct ReplicaComparison {
  std::int64_t run_step = 0;  ///< before whose update the weights were compared
  bool differ = false;
  std::string param{};                 ///< the first whose values differ; empty: it is not known
  std::vector<std::int32_t> others{};  ///< ranks that differ from `rank`
  std::int32_t rank = 0;
  std::int64_t equal_at = 0;  ///< run step before whose update they were last found equal
};

}  // namespace gradvane::record
