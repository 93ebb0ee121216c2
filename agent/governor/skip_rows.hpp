#pragma once
// The steps that each optimizer skipped in a row, however late some of them are known.
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "agent/governor/decision.hpp"

namespace gradvane::agent {

/// Steps have numbers in their order, and become known in any order: the host judges one at once, and the worker learns
/// later what a device did with those before it. Any thread.
class SkipRows {
 public:
  struct Skip {
    std::int64_t number = 0;
    std::int64_t run_step = 0;
    Fault fault = Fault::none;
  };

  /// The number of a step that is left to the device. 0: its row has to be known in time. Allocates for an optimizer's
  /// first step, as the others do.
  [[nodiscard]] std::int64_t leave(int optimizer, bool in_graph);
  /// What became of it. `number` 0: it is a replay of a graph, behind all that are known.
  void note_outcome(int optimizer, Skip skip);
  /// The host lets a step be taken. Returns the last skip of the row that this ends if it was `limit` long, and that is
  /// known only now.
  std::optional<Skip> taken(int optimizer, std::int64_t limit);
  /// The host skips a step. Returns it if the row is `limit` long then, which ends it.
  std::optional<Skip> skipped(int optimizer, std::int64_t run_step, Fault fault,
                              std::int64_t limit);

  /// In the row that was touched last.
  [[nodiscard]] int in_a_row() const noexcept { return in_a_row_.load(std::memory_order_relaxed); }

 private:
  /// Those behind the last step that was taken, or that the row before led to.
  struct Row {
    std::int64_t over = 0;    ///< number of that step
    std::vector<Skip> skips;  ///< by number
    std::int64_t older = 0;   ///< further ones before them
    bool has_late = false;    ///< some of them became known after the host had judged last

    void add(const Skip& skip);
    void end(std::int64_t number) noexcept;
    [[nodiscard]] std::int64_t count() const noexcept {
      return older + static_cast<std::int64_t>(skips.size());
    }
  };

  [[nodiscard]] Row& row_of(int optimizer);
  void show(const Row& row) noexcept;

  std::atomic<int> in_a_row_{0};
  std::mutex mutex_;  ///< guards what follows; held for moments only
  std::int64_t numbers_ = 0;
  std::vector<Row> rows_;  ///< by optimizer
};

}  // namespace gradvane::agent
