#include "agent/worker/run_progress.hpp"

#include <algorithm>

#include "agent/process/process_signals.hpp"

namespace gradvane::agent {
namespace {

using namespace std::chrono_literals;

constexpr auto kUnnoticedWait = 50ms;  // too short to be interrupted
constexpr auto kEndLook = 10ms;

}  // namespace

void RunProgress::note_exported(std::uint64_t steps) noexcept {
  const std::lock_guard lock(mutex_);
  exported_ = steps;
  changed_.notify_all();
}

std::optional<Ending> RunProgress::await_request(std::chrono::microseconds pause) {
  std::unique_lock lock(mutex_);
  ++rounds_;
  if (rounds_ <= wanted_) changed_.notify_all();
  changed_.wait_for(lock, pause, [this] { return request_.has_value() || rounds_ < wanted_; });
  return request_;
}

void RunProgress::note_last_round() noexcept {
  const std::lock_guard lock(mutex_);
  was_last_round_ = true;
  changed_.notify_all();
}

void RunProgress::postpone_end(Clock::time_point time) noexcept {
  const std::lock_guard lock(mutex_);
  end_by_ = std::max(end_by_, time);
}

void RunProgress::note_end() noexcept {
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
}

void RunProgress::request_end(record::RunState state, std::string_view reason,
                              Linger linger) noexcept {
  const std::lock_guard lock(mutex_);
  if (request_) return;
  end_by_ = std::max(end_by_, Clock::now() + kEndBudget);
  request_ = Ending{.state = state, .linger = linger};
  try {
    request_->reason = reason;
  } catch (...) {  // no memory: the end itself matters more
  }
  changed_.notify_all();
}

bool RunProgress::await_exported(std::uint64_t steps, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const std::uint64_t round = rounds_ + 2;  // one may be under way
  wanted_ = std::max(wanted_, round);
  changed_.notify_all();
  const auto is_over = [&] {
    return has_ended_ || (exported_ >= steps && (was_last_round_ || rounds_ >= round));
  };
  return changed_.wait_for(lock, timeout, is_over) && exported_ >= steps;
}

bool RunProgress::has_ended_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return has_ended_; });
}

bool RunProgress::await_end() {
  if (!process_is_ending() && has_ended_within(kUnnoticedWait)) return true;
  const CtrlC ctrl_c;
  auto until = Clock::time_point::max();
  while (!has_ended_within(kEndLook)) {
    if (CtrlC::was_pressed()) until = std::min(until, Clock::now() + 2 * kCutBudget);
    const std::lock_guard lock(mutex_);
    if (Clock::now() >= std::min(until, end_by_)) return has_ended_;
  }
  return true;
}

}  // namespace gradvane::agent
