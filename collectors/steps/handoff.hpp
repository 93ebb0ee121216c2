#pragma once
// What passes from the training thread to the worker: results of reads, facts of steps, and the plans
// that say what a slot's entries are. The training thread writes and never waits; a worker that is slow
// loses the oldest, and knows how much.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectors/steps/device_source.hpp"
#include "collectors/steps/open_step.hpp"
#include "collectors/steps/read_plan.hpp"
#include "collectors/steps/step_facts.hpp"
#include "kernels/result_ring.hpp"
#include "kernels/slot_ring.hpp"

namespace gradvane::collectors {

class Handoff {
 public:
  static constexpr int kFactSlots = 1024;

  /// @param ring_slots  see ResultRing::slots_for
  explicit Handoff(int ring_slots);

  // Training thread ---------------------------------------------------------------------------------

  /// Makes the plans of all optimizers known to the worker, and room for reads of `entries` tensors. A
  /// plan that is not among them any more has been replaced: it stays as long as a slot may name it.
  /// Allocates; takes a lock that the worker holds only while it copies a pointer.
  void set_plans(std::span<const std::shared_ptr<const ReadPlan>> plans, std::size_t entries);

  /// Makes the rings of devices known. Allocates; takes the same lock.
  void add_sources(std::vector<std::shared_ptr<const DeviceSource>> sources);
  /// Why a device is no longer read; the first reason stays.
  void note_device_failure(const std::string& why);
  [[nodiscard]] int ring_slots() const noexcept { return ring_slots_; }

  /// Publishes one read; returns its sequence number. noexcept, allocates nothing.
  std::uint64_t publish(std::uint64_t plan_id, std::span<const kernels::Site> sites,
                        std::span<const kernels::TensorStats> stats) noexcept;
  void publish(const StepFacts& facts) noexcept;
  /// The same. The worker leaves the step alone until newest() is closed, for a moment at most.
  void publish_open(const StepFacts& facts) noexcept;
  /// The step that was published last, closed if it takes no values any more. The worker has its part of it too.
  [[nodiscard]] OpenStep& newest() noexcept { return newest_; }

  /// Names of custom metrics, index = StepFacts::user. Allocates; takes the same lock.
  void set_user_metrics(std::vector<std::string> names);

  [[nodiscard]] std::uint64_t steps_published() const noexcept { return facts_.latest(); }
  /// Any thread: whoever waits for the steps published so far is not kept waiting by an open one.
  void hurry() noexcept { hurried_.store(facts_.latest(), std::memory_order_release); }

  /// How often the worker has asked for the weights before their turn.
  [[nodiscard]] std::uint32_t weights_asked() const noexcept {
    return weights_asked_.load(std::memory_order_relaxed);
  }
  /// As set_weight_every() has it.
  [[nodiscard]] int weight_every() const noexcept {
    return weight_every_.load(std::memory_order_relaxed);
  }

  // Worker ------------------------------------------------------------------------------------------

  struct NextFacts {
    bool found = false;
    std::uint64_t lost = 0;  ///< steps overwritten before this one
  };
  NextFacts next(StepFacts& facts) noexcept;
  /// Has each optimizer's weights read at its next step, if they are read at all.
  void ask_for_weights() noexcept { weights_asked_.fetch_add(1, std::memory_order_relaxed); }
  /// Any thread. Weights are to be read in every step whose number is a multiple of this; 0: in none.
  void set_weight_every(int steps) noexcept {
    weight_every_.store(steps, std::memory_order_relaxed);
  }
  /// Steps taken or lost so far, in the numbering of steps_published().
  [[nodiscard]] std::uint64_t steps_taken() const noexcept { return next_facts_ - 1; }

  [[nodiscard]] bool is_hurried(std::uint64_t sequence) const noexcept {
    return sequence <= hurried_.load(std::memory_order_acquire);
  }

  /// The slot of a read. False where it has been overwritten.
  bool read(std::uint64_t sequence, kernels::SlotHeader& header,
            std::vector<kernels::TensorStats>& stats);
  /// Plans that are kept: those in use, and replaced ones that a slot may name.
  [[nodiscard]] std::size_t plans_kept();
  /// Null where the plan is too old to be known.
  [[nodiscard]] std::shared_ptr<const ReadPlan> plan(std::uint64_t id);
  /// Null where it is not known.
  [[nodiscard]] std::shared_ptr<const DeviceSource> source(std::uint64_t id);
  /// Empty: no device has failed.
  [[nodiscard]] std::string device_failure();
  /// As set_user_metrics() has them; never null.
  [[nodiscard]] std::shared_ptr<const std::vector<std::string>> user_metrics();
  /// The model of the newest plan; null before there is one.
  [[nodiscard]] std::shared_ptr<const record::ModelInfo> newest_model();

 private:
  struct Ring {
    std::shared_ptr<kernels::ResultRing> ring;
    std::uint64_t after = 0;  ///< its first read has the next sequence number
  };
  struct Known {
    std::shared_ptr<const ReadPlan> plan;
    std::uint64_t last_read = 0;  ///< the newest that names it; the training thread's own
  };
  /// Replaced plans that are kept for slots of devices, at least: which of them such a slot names is not
  /// known here, and a captured graph names one for good.
  static constexpr std::size_t kReplacedForDevices = 64;
  static constexpr std::size_t kKnownRings = 4;

  [[nodiscard]] const Ring* ring_of(std::uint64_t sequence) const noexcept;
  void forget_replaced();

  int ring_slots_;
  std::atomic<std::uint32_t> weights_asked_{0};
  std::atomic<int> weight_every_{0};
  kernels::SlotRing facts_{kFactSlots, sizeof(StepFacts)};
  std::uint64_t facts_written_ = 0;
  std::uint64_t next_facts_ = 1;
  OpenStep newest_;
  std::atomic<std::uint64_t> hurried_{0};
  std::unique_ptr<kernels::RingProducer> producer_;

  std::mutex mutex_;  ///< guards what follows
  std::vector<Ring> rings_;
  std::unordered_map<std::uint64_t, Known> plans_;
  std::vector<std::uint64_t> in_use_;    ///< of these
  std::vector<std::uint64_t> replaced_;  ///< and these, the oldest first
  std::shared_ptr<const record::ModelInfo> newest_model_;
  std::shared_ptr<const std::vector<std::string>> user_metrics_ =
      std::make_shared<const std::vector<std::string>>();
  std::vector<std::shared_ptr<const DeviceSource>> sources_;
  std::string device_failure_;
};

}  // namespace gradvane::collectors
