#pragma once
// The device memory of a step, if it is one in which it is read.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "collectors/steps/step_facts.hpp"
#include "collectors/tensors/device_memory.hpp"

namespace gradvane::agent {

/// Training thread only.
class DeviceMemoryFacts {
 public:
  /// Seldom: it takes a lock that allocations take too.
  static constexpr std::int64_t kEvery = 32;
  /// @param device_reads  devices on which the step's gradients were read
  [[nodiscard]] static bool is_due(std::size_t device_reads, std::int64_t step) noexcept {
    return device_reads > 0 && step % kEvery == 1;
  }

  void note(std::size_t device_reads, collectors::StepFacts& facts) noexcept {
    if (is_due(device_reads, facts.step)) put(collectors::device_memory_use(), facts);
  }
  void put(const std::optional<collectors::DeviceMemoryUse>& use,
           collectors::StepFacts& facts) noexcept {
    if (!use) return;
    facts.device_allocated_bytes = use->allocated_bytes;
    facts.device_reserved_bytes = use->reserved_bytes;
    facts.device_peak_bytes = use->peak_bytes;
    if (use->limit_bytes > 0) facts.device_limit_bytes = use->limit_bytes;
    facts.device_allocation_retries = retries_.total(use->allocation_retries);
    facts.device_out_of_memory = failures_.total(use->out_of_memory);
  }

 private:
  collectors::KeptCount retries_;
  collectors::KeptCount failures_;
};

}  // namespace gradvane::agent
