#pragma once
// The step that was handed over last. Until it is closed, values that the loop logs behind it become its own.
#include <atomic>
#include <cstdint>
#include <optional>

#include "collectors/steps/slot_reads.hpp"
#include "collectors/steps/step_facts.hpp"
#include "kernels/slot_ring.hpp"

namespace gradvane::collectors {

/// What came behind a step: a value of a custom metric, the step's loss as the loop has it, or where custom metrics were
/// read on a device.
struct LateValue {
  enum class Of : std::uint8_t { metric, loss, read };
  Of of = Of::metric;
  std::int32_t metric = 0;  ///< its index; of a read, that of the last one that has a name
  double value = 0;         ///< of the metric or of the loss
  SlotRead read{};
};

/// The training thread opens a step and adds values; either thread closes it. Neither waits: a step to which a value is
/// being added stays open for that moment. Nothing is allocated after construction.
class OpenStep {
 public:
  // Training thread ---------------------------------------------------------------------------------

  /// The step before is closed. `sequence` is that of the step's facts, which are handed over after this.
  void open(std::uint64_t sequence) noexcept {
    sequence_ = sequence;
    state_.store(opened(sequence), std::memory_order_release);
  }
  /// What is logged from now on belongs to the next step.
  void close() noexcept {
    sequence_ = 0;
    state_.store(kClosed, std::memory_order_release);
  }
  /// This thread has not closed the step that it opened. The worker may have.
  [[nodiscard]] bool is_behind_it() const noexcept { return sequence_ != 0; }

  /// While one of these is true, the step stays open and takes values.
  class Addition {
   public:
    explicit Addition(OpenStep& step) noexcept : step_(step), is_taken_(step.begin_addition()) {}
    ~Addition() {
      if (is_taken_) step_.end_addition();
    }
    Addition(const Addition&) = delete;  // one end for each begin
    Addition& operator=(const Addition&) = delete;

    /// False: the step is closed, and there is nothing to add to.
    explicit operator bool() const noexcept { return is_taken_; }
    void add(const LateValue& value) noexcept { step_.write(value); }

   private:
    OpenStep& step_;
    bool is_taken_;
  };

  // Worker ------------------------------------------------------------------------------------------

  [[nodiscard]] bool is_open(std::uint64_t sequence) const noexcept {
    return (state_.load(std::memory_order_acquire) & ~kBusy) == opened(sequence);
  }
  /// Closes it, if it is open. False: a value is being added at this very moment.
  [[nodiscard]] bool close(std::uint64_t sequence) noexcept;
  /// Adds to `facts`, of the closed step with this number, what came behind it. Steps are asked for in their order.
  void add_to(std::uint64_t sequence, StepFacts& facts) noexcept;

 private:
  static constexpr std::uint64_t kClosed = 0;
  static constexpr std::uint64_t kBusy = 1;
  static constexpr int kLateSlots = 1024;

  struct Slot {
    std::uint64_t sequence = 0;
    LateValue value;
  };

  [[nodiscard]] static constexpr std::uint64_t opened(std::uint64_t sequence) noexcept {
    return sequence << 1;
  }
  [[nodiscard]] bool begin_addition() noexcept;
  void end_addition() noexcept { state_.store(opened(sequence_), std::memory_order_release); }
  void write(const LateValue& value) noexcept { late_.write(++written_, Slot{sequence_, value}); }
  [[nodiscard]] bool look() noexcept;

  std::atomic<std::uint64_t> state_{kClosed};
  kernels::SlotRing late_{kLateSlots, sizeof(Slot)};
  std::uint64_t sequence_ = 0;  ///< the training thread's, as the next one
  std::uint64_t written_ = 0;
  std::uint64_t next_ = 1;    ///< the worker's, as the next one
  std::optional<Slot> seen_;  ///< read, and not used yet
};

}  // namespace gradvane::collectors
