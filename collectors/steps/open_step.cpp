#include "collectors/steps/open_step.hpp"

#include <algorithm>

namespace gradvane::collectors {

bool OpenStep::begin_addition() noexcept {
  std::uint64_t expected = opened(sequence_);
  return expected != kClosed && state_.compare_exchange_strong(expected, expected | kBusy);
}

bool OpenStep::close(std::uint64_t sequence) noexcept {
  std::uint64_t expected = opened(sequence);
  return state_.compare_exchange_strong(expected, kClosed) ||
         expected != (opened(sequence) | kBusy);
}

/// Reads the next value that is still there.
bool OpenStep::look() noexcept {
  while (!seen_) {
    Slot slot;
    switch (late_.read(next_, slot)) {
      case kernels::SlotStatus::ok:
        ++next_;
        seen_ = slot;
        break;
      case kernels::SlotStatus::not_yet:
        return false;
      case kernels::SlotStatus::overwritten:
        next_ = std::max(late_.oldest(), next_ + 1);
        break;
    }
  }
  return true;
}

void OpenStep::add_to(std::uint64_t sequence, StepFacts& facts) noexcept {
  while (look() && seen_->sequence <= sequence) {
    const LateValue late = seen_->value;
    const bool is_its_own = seen_->sequence == sequence;
    seen_.reset();
    if (!is_its_own) continue;  // of a step that was lost
    switch (late.of) {
      case LateValue::Of::metric:
        facts.user[static_cast<std::size_t>(late.metric)] = late.value;
        facts.user_count = std::max(facts.user_count, late.metric + 1);
        break;
      case LateValue::Of::loss:
        facts.loop_loss = late.value;
        break;
      case LateValue::Of::read:
        facts.reads.set(late.read);
        facts.user_count = std::max(facts.user_count, late.metric + 1);
        break;
    }
  }
}

}  // namespace gradvane::collectors
