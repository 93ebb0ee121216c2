#include "agent/ledger_seat.hpp"

#include <torch/version.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "record/names.hpp"

namespace gradvane::agent {
namespace {

// PyTorch's profiler stopped asking for CUPTI's subscription in August 2026: before 2.14 it is taken to ask.
constexpr bool kProfilerAsks = TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 14;

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
  return collectors::ProfilerRule::gate;
}

}  // namespace

LedgerSeat::LedgerSeat(const Options& options) {
  if (!options.enabled || options.sync == Sync::off) return;
  collectors::LedgerWish wish;
  wish.at_once = options.sync == Sync::require;
  wish.library = options.sync_library;
  wish.profiler = rule_of(options.sync_profiler);
  wish.needs_gate = kProfilerAsks;
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
  if (ledger_ != nullptr) std::exchange(ledger_, nullptr)->leave();
}

}  // namespace gradvane::agent
