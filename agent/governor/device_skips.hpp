#pragma once
// Steps whose update was left to what the read of their gradients found on a device. What became of them is known later.
#include <set>
#include <vector>

#include "agent/governor/decision.hpp"
#include "agent/governor/mailbox.hpp"

namespace gradvane::agent {

/// Threading: note() from the worker's thread, take() from the one that trains.
class DeviceSkips {
 public:
  struct Outcome {
    int optimizer = 0;
    Fault fault = Fault::none;  ///< none: the step was taken
  };

  /// In the order of steps. A step that was taken counts only if it ends a row of skips. Allocates otherwise.
  void note(const Outcome& outcome) {
    if (outcome.fault != Fault::none)
      in_a_row_.insert(outcome.optimizer);
    else if (in_a_row_.erase(outcome.optimizer) == 0)
      return;
    outcomes_.put(outcome);
  }
  /// Those since the last call.
  [[nodiscard]] std::vector<Outcome> take() { return outcomes_.take(); }

 private:
  std::set<int> in_a_row_;  ///< optimizers whose last step was skipped; the worker's
  Mailbox<Outcome> outcomes_;
};

}  // namespace gradvane::agent
