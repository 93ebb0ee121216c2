#pragma once
// What the entries of a read are: the order in which a slot lists an optimizer's parameters.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "record/run/run_info.hpp"

namespace gradvane::collectors {

/// How the part of a parameter that lies in this process relates to the whole of it.
struct Shard {
  /// Of its squares, the part that counts towards a norm over all processes: replicas count once.
  double share = 1;
  std::int64_t first_element = 0;  ///< row-major index of its first element; -1: not one range
};

/// What one optimizer updates, in the order in which every slot lists it; that of a module's first
/// optimizer also has what is frozen and in none. Immutable once published.
struct ReadPlan {
  std::uint64_t id = 0;  ///< names the plan in ring slots; never reused
  std::int32_t optimizer = 0;
  std::shared_ptr<const record::ModelInfo> model;
  std::vector<std::int32_t> params;  ///< entry -> index into model->params
  std::string note;                  ///< how layers were joined into groups; empty: they were not
  std::vector<Shard> shards;         ///< by entry; empty: all of every parameter is here
};

}  // namespace gradvane::collectors
