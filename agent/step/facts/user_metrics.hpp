#pragma once
// Custom metrics that the loop logs during a step.
#include <array>
#include <cstdint>

#include "collectors/steps/handoff.hpp"
#include "collectors/steps/step_facts.hpp"
#include "collectors/tensors/device_reads.hpp"
#include "record/step_record.hpp"

namespace gradvane::agent {

/// The latest value of each custom metric in the step in progress. Training thread only; never
/// waits.
class UserMetrics {
 public:
  explicit UserMetrics(collectors::Handoff& handoff) noexcept;

  /// Room for plans called `plan_id`. Allocates.
  void resize(int ring_slots, std::uint64_t plan_id);

  /// Whether a value has one element on a device that is read there.
  [[nodiscard]] bool takes(const collectors::Tensor& value) const noexcept;
  /// Sets the metric with this index. -1: there was no room for its name, which is counted. Returns whether
  /// there was.
  bool set(int index, double value) noexcept;
  /// The same for a value that takes() accepts. Copies it there. Throws where the device has no
  /// memory.
  bool set(int index, const collectors::Tensor& value);
  void refuse_name() noexcept { ++refused_names_; }

  /// Reads the values on a device into a slot of their own.
  void read(collectors::StepFacts& facts) noexcept;
  /// @param count  names that are known
  void write_to(collectors::StepFacts& facts, std::size_t count) noexcept;
  /// As DeviceReads::wait().
  bool wait(std::uint64_t& waited) noexcept { return reads_.wait(waited); }
  void pass_on_sources() noexcept;
  void clear() noexcept;

 private:
  collectors::Handoff& handoff_;
  std::array<double, record::kMaxUserMetrics> values_{};
  std::array<collectors::Tensor, record::kMaxUserMetrics> device_values_;
  bool has_device_values_ = false;
  collectors::DeviceReads reads_;
  std::int32_t refused_names_ = 0;
};

}  // namespace gradvane::agent
