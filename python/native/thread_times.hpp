#pragma once
// When the step, the backward pass and the forward pass of a thread that trains began.
#include <chrono>
#include <cstdint>
#include <optional>

#include "agent/step/own_time.hpp"

namespace gradvane::python {

using agent::Clock;
using agent::UnbookedTime;

/// Times of one thread that trains, by its UnbookedTime.
struct InThread {
  std::uint64_t agent = 0;  ///< whose times these are
  Clock::duration step_began{};
  Clock::duration backward_began{};
  /// Since then a backward pass has its forward pass. Absent: not known.
  std::optional<Clock::duration> forward_began{};
  /// Data was waited for, so what lies between it and the backward pass is the forward pass.
  bool has_data = false;
  /// The loop itself says where the forward pass is.
  bool marks_forward = false;
};

inline InThread& in_thread(std::uint64_t agent) noexcept {
  static thread_local InThread here;
  if (here.agent != agent) here = {.agent = agent};
  return here;
}

/// Where data was waited for, the forward pass lies between that, a step or a backward pass and the next backward
/// pass. Elsewhere the loop may be getting its data itself.
inline void forward_may_begin(InThread& here, Clock::time_point now) noexcept {
  if (here.has_data && !here.marks_forward) here.forward_began = UnbookedTime::at(now);
}

}  // namespace gradvane::python
