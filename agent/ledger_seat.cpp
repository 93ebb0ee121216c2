#include "agent/ledger_seat.hpp"

#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>

#include "collectors/tensors/tensor.hpp"
#include "record/names.hpp"

namespace gradvane::agent {
namespace {

/// PyTorch's profiler stopped asking for CUPTI's subscription in August 2026: before 2.14 it is taken to ask.
bool profiler_asks() {
  int major = 0;
  int minor = 0;
  return std::sscanf(collectors::torch_version().c_str(), "%d.%d", &major, &minor) == 2 &&
         major == 2 && minor < 14;
}

collectors::ProfilerRule rule_of(SyncProfiler wanted) {
  switch (wanted) {
    case SyncProfiler::yield:
      return collectors::ProfilerRule::yield;
    case SyncProfiler::share:
      return collectors::ProfilerRule::share;
    case SyncProfiler::automatic:  // nobody would see the profiler start
    case SyncProfiler::gate:
      break;
  }
  return collectors::ProfilerRule::keep;
}

/// The variable is read by other threads at any time, so nobody may set it in a process that runs.
void require_gate() {
  if (!profiler_asks() || collectors::profiler_is_told_not_to_ask()) return;
  throw std::runtime_error(
      "sync_profiler = gate: PyTorch's profiler leaves CUPTI alone only if KINETO_USE_DAEMON=1 is "
      "in the environment when the program starts; set it there, or set sync_profiler = yield");
}

}  // namespace

LedgerSeat::LedgerSeat(const Options& options) {
  if (!options.enabled || options.sync == Sync::off) return;
  if (options.sync_profiler == SyncProfiler::gate) require_gate();
  collectors::LedgerWish wish;
  wish.at_once = wish.is_required = options.sync == Sync::require;
  wish.library = options.sync_library;
  wish.profiler = rule_of(options.sync_profiler);
  wish.threshold = std::int64_t{1000} * options.sync_threshold_us;
  ledger_ = &collectors::process_ledger();
  ledger_->join(wish);
  if (options.sync != Sync::require) return;
  const record::SyncSummary now = ledger_->summary();
  if (now.source == record::SyncSource::cupti) return;
  leave();
  throw std::runtime_error(
      "sync = require: host syncs cannot be counted (" + std::string(name_of(now.reason)) +
      (now.detail.empty() ? "" : ": " + now.detail) + "); set sync = auto to train without");
}

void LedgerSeat::leave() noexcept {
  outside_steps(-outside_);
  if (ledger_ != nullptr) std::exchange(ledger_, nullptr)->leave();
}

void LedgerSeat::outside_steps(int delta) noexcept {
  if (ledger_ == nullptr || delta == 0) return;
  outside_ += delta;
  ledger_->outside_steps(delta);
}

}  // namespace gradvane::agent
