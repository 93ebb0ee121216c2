#pragma once
// Records of sharded parameters that wait for what the other processes bring to their norm.
#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "collectors/steps/norm_exchange.hpp"
#include "collectors/steps/step_facts.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::collectors {

/// The worker's. Order is kept: a record behind one that waits waits too.
class HeldRecords {
 public:
  using Clock = std::chrono::steady_clock;
  /// Another process may be behind by this much before a step is exported without its norm.
  static constexpr std::chrono::milliseconds kPatience{2000};
  /// Most records that wait: with one more, the oldest is exported as it is.
  static constexpr std::size_t kMostHeld = 256;

  struct Held {
    record::StepRecord record;
    record::StepDetail detail;
    std::shared_ptr<const record::ModelInfo> model;
    StepFacts facts;
    Clock::time_point until;
  };

  /// `exchange` may be null: nothing waits then.
  explicit HeldRecords(NormExchange* exchange) : exchange_(exchange) {}

  /// Whether the record has to wait.
  [[nodiscard]] bool must_hold(const record::StepRecord& record) const;
  void hold(Held held);
  /// The oldest, if it is complete or its time is over; with `all`, whatever it is.
  [[nodiscard]] std::optional<Held> next(bool all);
  [[nodiscard]] bool empty() const noexcept { return held_.empty(); }
  /// Times since the last call that the exchange between processes ended with an error.
  [[nodiscard]] int take_failures() {
    return exchange_ == nullptr ? 0 : exchange_->take_failures();
  }

 private:
  NormExchange* exchange_;
  std::deque<Held> held_;
};

}  // namespace gradvane::collectors
