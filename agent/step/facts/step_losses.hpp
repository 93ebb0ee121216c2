#pragma once
// The loss of a step: which of the losses that were seen it is, and its read.
#include <cstdint>

#include "agent/step/facts/losses.hpp"
#include "collectors/steps/handoff.hpp"
#include "collectors/steps/step_facts.hpp"
#include "collectors/tensors/cpu_reader.hpp"
#include "collectors/tensors/device_reads.hpp"

namespace gradvane::agent {

/// Losses that the loop passes hold for the step in progress, whichever optimizer ends it. Each
/// optimizer has the losses of its own backward passes besides. Training thread only; never waits.
class StepLosses {
 public:
  explicit StepLosses(collectors::Handoff& handoff);

  /// Room for plans called `plan_id`. Allocates.
  void resize(int ring_slots, std::uint64_t plan_id);

  /// Adds a loss that the loop passes for the step in progress.
  void add(const collectors::Tensor& loss) noexcept;
  /// The same at any moment. Behind a step that has a loss it is that step's: a finite number on a CPU replaces a finite
  /// loss, and anything else says nothing new.
  void log(const collectors::Tensor& loss) noexcept;
  /// Adds a loss to those of one optimizer.
  void add(Losses& own, const collectors::Tensor& loss, Losses::From from) noexcept;
  /// The losses that count for an optimizer: what the loop passes overrides what backward passes
  /// showed.
  [[nodiscard]] const Losses& of(const Losses& own) const noexcept {
    return losses_.any() ? losses_ : own;
  }
  const Losses& of(Losses&& own) const = delete;  // it would be gone
  [[nodiscard]] const Losses& of_loop() const noexcept { return losses_; }

  /// Reads a loss that was not read with the gradients.
  void read(const Losses& own, std::uint64_t plan_id, collectors::StepFacts& facts) noexcept;
  /// As DeviceReads::wait().
  bool wait(std::uint64_t& waited) noexcept { return device_reads_.wait(waited); }
  void pass_on_sources() noexcept;
  /// A step is handed over whose losses were these, those of the loop aside.
  void note_step(const Losses& own) noexcept { last_has_loss_ = of(own).any(); }
  /// Forgets what the loop has passed.
  void clear() noexcept { losses_.clear(); }

 private:
  collectors::Handoff& handoff_;
  Losses losses_;
  bool last_has_loss_ = false;           ///< the last step
  bool is_of_step_in_progress_ = false;  ///< the loop has passed losses before it took the step
  double value_ = 0;                     ///< that is being read on a CPU
  collectors::CpuReader reader_;
  collectors::DeviceReads device_reads_;
};

}  // namespace gradvane::agent
