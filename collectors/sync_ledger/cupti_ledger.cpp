#include "collectors/sync_ledger/cupti_ledger.hpp"

#include <algorithm>
#include <cstdlib>

#include "collectors/sync_ledger/places/native_stack.hpp"

namespace gradvane::collectors {

void CuptiLedger::join(const LedgerWish& wish) noexcept {
  if (is_dead_) return;
  intake_.begin_start_up();
  {
    const std::lock_guard lock(set_up_);
    (void)intake_.python().look();
    NativeStack::look();
    // What a compiler writes there runs for a user's lines.
    if (const char* cache = std::getenv("TORCHINDUCTOR_CACHE_DIR")) intake_.pass_over(cache);
  }
  keeper_.join(wish);
}

void CuptiLedger::leave() noexcept {
  if (!is_dead_) keeper_.leave();
}

void CuptiLedger::driver_comes() noexcept {
  if (!is_dead_) keeper_.driver_comes();
}

void CuptiLedger::pass_over(const std::string& directory) noexcept {
  const std::lock_guard lock(set_up_);
  intake_.pass_over(directory);
}

void CuptiLedger::profiler_begins(const char* name) noexcept {
  if (!is_dead_) keeper_.profiler_begins(name);
}

void CuptiLedger::profiler_ended() noexcept {
  if (!is_dead_) keeper_.profiler_ended();
}

void CuptiLedger::look(bool may_subscribe) noexcept {
  if (is_dead_) return;
  (void)intake_.python().look();
  keeper_.look(may_subscribe);
}

void CuptiLedger::end() noexcept {
  if (is_dead_) return;
  intake_.python().end();
  keeper_.end();
}

void CuptiLedger::own(int delta) noexcept { CallIntake::own(delta); }

const char* CuptiLedger::set_scope(const char* name) noexcept {
  return CallIntake::set_scope(name);
}

SyncMark CuptiLedger::end_step() noexcept {
  intake_.settle_thread();
  // A step is known only if CUPTI has told of calls up to its very end.
  const std::uint64_t generation = keeper_.check();
  const SyncMark mark{intake_.end_epoch(), generation, intake_.polls()};
  if (mark.generation != 0) {
    steps_.fetch_add(1, std::memory_order_relaxed);
    if (mark.generation == last_generation_.load(std::memory_order_relaxed) &&
        !intake_.is_start_up(mark.epoch))
      whole_steps_.fetch_add(1, std::memory_order_relaxed);
  }
  last_generation_.store(mark.generation, std::memory_order_relaxed);
  keeper_.subscribe_if_due();
  return mark;
}

void CuptiLedger::collect() noexcept try {
  if (is_dead_) return;
  const std::lock_guard lock(harvest_mutex_);
  harvest_.drain(intake_.epoch());
} catch (...) {  // no memory: the events wait, or count as dropped
}

bool CuptiLedger::step(const SyncMark& begin, const SyncMark& end, record::StepSyncs& syncs) {
  if (is_dead_) return false;
  const std::lock_guard lock(harvest_mutex_);
  harvest_.drain(intake_.epoch());
  const bool is_covered = begin.generation != 0 && begin.generation == end.generation;
  if (!is_covered || !harvest_.step(begin.epoch, end.epoch, syncs)) return false;
  syncs.polls = static_cast<std::int32_t>(std::max<std::int64_t>(end.polls - begin.polls, 0));
  return true;
}

std::vector<record::StepSyncSite> CuptiLedger::sites_of_step(const SyncMark& begin,
                                                             const SyncMark& end,
                                                             record::SyncOrigin origin) {
  const std::lock_guard lock(harvest_mutex_);
  return harvest_.sites_of_step(begin.epoch, end.epoch, origin);
}

record::SyncSummary CuptiLedger::summary() {
  record::SyncSummary summary;
  if (is_dead_) return summary;
  keeper_.describe(summary);
  if (const PythonStack& python = intake_.python(); python.state() == PythonState::unknown_layout)
    summary.detail += (summary.detail.empty() ? "" : "; ") + std::string("the lines of Python ") +
                      python.version() + " are not known";
  summary.steps = steps_.load(std::memory_order_relaxed);
  summary.whole_steps = whole_steps_.load(std::memory_order_relaxed);
  const std::lock_guard lock(harvest_mutex_);
  const std::uint64_t epoch = intake_.epoch();
  harvest_.drain(epoch);
  // A wait that comes later than that belongs to no copy, and at the end none comes any more.
  constexpr std::int64_t kSecond = 1'000'000'000;
  harvest_.summarise(summary, epoch, world_.now() - (keeper_.has_ended() ? 0 : kSecond));
  return summary;
}

void CuptiLedger::in_forked_child() noexcept {
  is_dead_.store(true);
  keeper_.in_forked_child();
}

}  // namespace gradvane::collectors
