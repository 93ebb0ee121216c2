#pragma once
// Compares the weights of replicas every few steps, as part of what ranks tell each other.
#include <cstdint>
#include <span>
#include <string>

#include "agent/governor/governor.hpp"
#include "agent/ranks/rank_record.hpp"
#include "agent/ranks/replicas.hpp"
#include "agent/step/attached_optimizers.hpp"

namespace gradvane::agent {

/// Training thread only. For weights on CPUs that are not sharded.
class ReplicaCheck {
 public:
  /// The others outlive this object.
  ReplicaCheck(const Options& options, AttachedOptimizers& optimizers, Governor& governor)
      : optimizers_(optimizers), governor_(governor), replicas_(options.compare_replicas_every) {}

  /// Adds the fingerprint that the exchange in hand is to have. Reads all weights at a comparison,
  /// some GB per second; allocates nothing.
  void add_fingerprint(int optimizer, ranks::RankRecord& record) noexcept;

  /// What all ranks have told, by rank. They agree on the step.
  void compare(int optimizer, std::int64_t run_step, std::span<const std::string> records) noexcept;

 private:
  AttachedOptimizers& optimizers_;
  Governor& governor_;
  ranks::Replicas replicas_;
};

}  // namespace gradvane::agent
