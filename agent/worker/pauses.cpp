#include "agent/worker/pauses.hpp"

#include <algorithm>

namespace gradvane::agent {

void Pauses::change(int delta, Clock::time_point now) noexcept {
  const std::lock_guard lock(mutex_);
  if (open_ == 0) began_ = now;
  const double time = current(now);
  open_ = std::max(0, open_ + delta);
  if (open_ == 0) ended_ += time;
}

double Pauses::seconds(Clock::time_point now) const noexcept {
  const std::lock_guard lock(mutex_);
  return ended_ + (open_ > 0 ? current(now) : 0.0);
}

double Pauses::current(Clock::time_point now) const noexcept {
  return std::clamp(std::chrono::duration<double>(now - began_).count(), 0.0, longest_);
}

}  // namespace gradvane::agent
