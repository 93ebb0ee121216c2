#pragma once
// What is kept for each optimizer, where a run may have any number of them one after another.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "record/step_record.hpp"

namespace gradvane::exporters {

/// At most this many optimizers that step in turns are told apart.
inline constexpr std::size_t kMostOptimizers = 8;

/// A T for each of the last few optimizers that stepped.
template <typename T>
class ByOptimizer {
 public:
  /// In the place of the one that has not stepped for longest, unless all of them still do: then null.
  /// @param gone  where to write which one gave up its place, if one did
  T* at(std::int32_t optimizer, std::int64_t run_step,
        std::optional<std::int32_t>* gone = nullptr) {
    auto place = std::ranges::find(entries_, optimizer, &Entry::optimizer);
    if (place == entries_.end()) {
      if (entries_.size() < kMostOptimizers) {
        place = entries_.insert(place, Entry{.optimizer = optimizer});
      } else {
        place = std::ranges::min_element(entries_, {}, &Entry::last_step);
        if (place->last_step + 1 >= run_step) return nullptr;
        if (gone != nullptr) *gone = place->optimizer;
        *place = Entry{.optimizer = optimizer};
      }
    }
    place->last_step = run_step;
    return &place->value;
  }

  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  [[nodiscard]] std::vector<std::int32_t> optimizers() const {
    std::vector<std::int32_t> all;
    for (const Entry& entry : entries_) all.push_back(entry.optimizer);
    std::ranges::sort(all);
    return all;
  }
  /// Null where it has not stepped, or was given up.
  [[nodiscard]] const T* find(std::int32_t optimizer) const {
    const auto place = std::ranges::find(entries_, optimizer, &Entry::optimizer);
    return place == entries_.end() ? nullptr : &place->value;
  }

 private:
  struct Entry {
    std::int32_t optimizer = 0;
    std::int64_t last_step = 0;
    T value = {};
  };
  std::vector<Entry> entries_;
};

/// Which optimizer's steps are the run's. Who moves the run step on leads; who steps beside it has the same.
class RunLead {
 public:
  void note(const record::StepRecord& record) noexcept {
    const bool moves = record.is_step() && record.run_step > run_step_;
    if (moves || run_step_ == 0) {
      // Where records were lost, the leader's own may be one of them.
      if (run_step_ == 0 || record.dropped_before == 0) optimizer_ = record.optimizer;
    }
    if (moves) run_step_ = record.run_step;
  }
  [[nodiscard]] std::int32_t optimizer() const noexcept { return optimizer_; }

 private:
  std::int32_t optimizer_ = 0;
  std::int64_t run_step_ = 0;
};

}  // namespace gradvane::exporters
