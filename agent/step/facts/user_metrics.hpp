#pragma once
// Custom metrics that the loop logs, during a step or behind it.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectors/steps/handoff.hpp"
#include "collectors/steps/step_facts.hpp"
#include "collectors/tensors/device_reads.hpp"
#include "record/step_record.hpp"

namespace gradvane::agent {

/// The latest value of each custom metric in the step in progress. What is logged behind a step belongs to it, until the
/// next one shows itself; a metric that was ever logged during a step always belongs to the step in progress. Training
/// thread only; never waits.
class UserMetrics {
 public:
  explicit UserMetrics(collectors::Handoff& handoff) noexcept;

  /// Room for plans called `plan_id`. Allocates.
  void resize(int ring_slots, std::uint64_t plan_id);

  /// Whether a value has one element on a device that is read there.
  [[nodiscard]] bool takes(const collectors::Tensor& value) const noexcept;
  /// Sets a metric. False: there is no room for its name, which is counted. Throws std::bad_alloc.
  bool set(std::string_view name, double value);
  /// The same for a value that takes() accepts. Copies it there. Throws where the device has no
  /// memory.
  bool set(std::string_view name, const collectors::Tensor& value);
  void refuse_name() noexcept { ++refused_names_; }

  /// Whether values that lie on a device came behind the last step.
  [[nodiscard]] bool has_late() const noexcept { return late_.any; }
  /// Reads them for that step. A step has one read of custom metrics on a device, and a graph that is being captured would
  /// read again at each replay: where there can be none, the values are the next step's.
  void read_late(bool is_capturing) noexcept;
  /// Reads the values on a device into a slot of their own.
  void read(collectors::StepFacts& facts) noexcept;
  void write_to(collectors::StepFacts& facts) noexcept;
  /// As DeviceReads::wait().
  bool wait(std::uint64_t& waited) noexcept { return reads_.wait(waited); }
  void pass_on_sources() noexcept;
  void clear() noexcept;

 private:
  /// Values that lie on a device, by the metric's index.
  struct OnDevice {
    std::array<collectors::Tensor, record::kMaxUserMetrics> values;
    bool any = false;

    void set(std::size_t index, collectors::Tensor value) noexcept;
    void clear() noexcept;
  };

  [[nodiscard]] int index_of(std::string_view name);
  [[nodiscard]] std::int32_t count() const noexcept {
    return static_cast<std::int32_t>(names_.size());
  }
  [[nodiscard]] bool is_late(std::size_t index) noexcept;
  void read(OnDevice& from, collectors::StepFacts& facts) noexcept;

  collectors::Handoff& handoff_;
  std::vector<std::string> names_;
  std::array<bool, record::kMaxUserMetrics> is_of_step_in_progress_{};
  std::array<double, record::kMaxUserMetrics> values_{};
  OnDevice on_device_;
  OnDevice late_;               ///< those of the step that was taken last
  bool has_read_step_ = false;  ///< whose values on a device have been read, if it had any
  collectors::DeviceReads reads_;
  std::int32_t refused_names_ = 0;
};

}  // namespace gradvane::agent
