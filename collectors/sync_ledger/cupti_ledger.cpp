#include "collectors/sync_ledger/cupti_ledger.hpp"

#include <algorithm>
#include <utility>

#include "collectors/sync_ledger/cupti_library.hpp"

namespace gradvane::collectors {
namespace {

// In the block of thread-local memory that every thread has from its birth: nothing is allocated when a
// callback first looks.
[[gnu::tls_model("initial-exec")]] constinit thread_local LedgerThread this_thread;

std::int64_t monotonic_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

CuptiLedger::World CuptiLedger::real_world() noexcept {
  return {&cupti::load, &cupti::driver_is_loaded, &cupti::call_driver, &monotonic_nanoseconds,
          [] {}};
}

CuptiLedger::CuptiLedger(World world) : world_(world) {}

void CuptiLedger::on_callback(void* user, cupti::Domain domain, std::uint32_t id,
                              const void* data) {
  auto& ledger = *static_cast<CuptiLedger*>(user);
  if (!ledger.is_open_.load(std::memory_order_relaxed) || data == nullptr) return;
  if (domain == cupti::Domain::state) {
    if (id == cupti::kStateFatalError) ledger.has_failed_.store(true, std::memory_order_relaxed);
    return;
  }
  if (domain == cupti::Domain::driver && id == cupti::kDriverGetVersion) {
    ++this_thread.signs;
    return;
  }
  ledger.take(domain, id, *static_cast<const cupti::CallbackData*>(data));
}

void CuptiLedger::take(cupti::Domain domain, std::uint32_t id,
                       const cupti::CallbackData& data) noexcept {
  const CudaCall* call = cuda_call(domain, id);
  if (call == nullptr) return;
  ThreadTable* const table = this->table(*call, data.site);
  if (table == nullptr) return;
  CallCounter::Circumstances now;
  now.now = world_.now();
  now.generation = generation_.load(std::memory_order_relaxed);
  now.epoch = epoch_.load(std::memory_order_relaxed);
  now.phase = phase_.load(std::memory_order_relaxed);
  now.scope = this_thread.scope;
  if (this_thread.own > 0) now.origin = record::SyncOrigin::gradvane;
  now.part = part_of(now.epoch);
  if (now.part == record::SyncPart::other_threads) now.phase = kNoPhase;  // that of who trains
  if (data.site == cupti::Site::enter)
    counter_.enter(*table, *call, data, now);
  else
    counter_.exit(*table, *call, data, now);
}

record::SyncPart CuptiLedger::part_of(std::uint64_t epoch) const noexcept {
  if (epoch <= start_epoch_.load(std::memory_order_relaxed)) return record::SyncPart::start_up;
  // Of a thread that ends steps the table says so, from its first call on.
  if (this_thread.own <= 0 && this_thread.table->is_of_training == 0)
    return record::SyncPart::other_threads;
  return outside_.load(std::memory_order_relaxed) > 0 ? record::SyncPart::between_steps
                                                      : record::SyncPart::in_steps;
}

/// Makes a call that raises a callback, on this thread, and looks whether it did. CUPTI itself is asked
/// nothing: it may have been ended, and what it gave us with it.
bool CuptiLedger::still_calls_back() noexcept {
  const std::uint32_t before = this_thread.signs;
  world_.call_driver();
  return this_thread.signs != before;
}

ThreadTable* CuptiLedger::table(const CudaCall& call, cupti::Site site) noexcept {
  if (this_thread.table != nullptr && this_thread.owner == this) return this_thread.table;
  constexpr std::uint32_t kTryAgain = 1024;  // looking for one takes a while
  if (this_thread.owner != this || this_thread.without % kTryAgain == 0) {
    this_thread.table = tables_.claim();
    this_thread.owner = this;
    if (this_thread.table != nullptr && this_thread.ends_steps)
      std::atomic_ref(this_thread.table->is_of_training).store(1, std::memory_order_relaxed);
  }
  if (this_thread.table != nullptr) return this_thread.table;
  ++this_thread.without;
  if (site == cupti::Site::enter && call.what != CallClass::poll) tables_.note_refused();
  return nullptr;
}

void CuptiLedger::own(int delta) noexcept { this_thread.own += delta; }

const char* CuptiLedger::set_scope(const char* name) noexcept {
  return std::exchange(this_thread.scope, name);
}

std::int64_t CuptiLedger::polls() noexcept {
  std::int64_t sum = tables_.polls_of_the_gone();
  tables_.for_each([&](ThreadTable& table) {
    if (std::atomic_ref(table.is_of_training).load(std::memory_order_relaxed) != 0)
      sum += std::atomic_ref(table.polls[0]).load(std::memory_order_relaxed);
  });
  return sum;
}

SyncMark CuptiLedger::end_step() noexcept {
  this_thread.ends_steps = true;
  if (this_thread.table != nullptr && this_thread.owner == this) {
    std::atomic_ref(this_thread.table->is_of_training).store(1, std::memory_order_relaxed);
    // Before the step is judged: its last copy would be booked on it too late.
    this_thread.table->settle_copy();
  }
  // A step is known only if CUPTI has told of calls up to its very end.
  if (generation_.load(std::memory_order_relaxed) % 2 == 1 && !is_subscription_alive()) {
    const std::lock_guard lock(control_);
    follow_loss();
  }
  const std::uint64_t generation = generation_.load(std::memory_order_relaxed);
  const SyncMark mark{epoch_.fetch_add(1, std::memory_order_relaxed),
                      generation % 2 == 1 ? generation : 0, polls()};
  if (mark.generation != 0) {
    steps_.fetch_add(1, std::memory_order_relaxed);
    if (mark.generation == last_generation_.load(std::memory_order_relaxed) &&
        mark.epoch > start_epoch_.load(std::memory_order_relaxed))
      whole_steps_.fetch_add(1, std::memory_order_relaxed);
  }
  last_generation_.store(mark.generation, std::memory_order_relaxed);
  if (is_due_.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(control_);
    if (is_due_.exchange(false)) subscribe();
  }
  return mark;
}

void CuptiLedger::collect() noexcept try {
  if (is_dead_) return;
  const std::lock_guard lock(harvest_mutex_);
  harvest_.drain(epoch_.load(std::memory_order_relaxed));
} catch (...) {  // no memory: the events wait, or count as dropped
}

bool CuptiLedger::step(const SyncMark& begin, const SyncMark& end, record::StepSyncs& syncs) {
  if (is_dead_) return false;
  const std::lock_guard lock(harvest_mutex_);
  harvest_.drain(epoch_.load(std::memory_order_relaxed));
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
  {
    const std::lock_guard lock(control_);
    pass_time();
    summary.source = source_;
    summary.reason = reason_;
    summary.detail = detail_;
    if (python_.state() == PythonState::unknown_layout)
      summary.detail += (detail_.empty() ? "" : "; ") + std::string("the lines of Python ") +
                        python_.version() + " are not known";
    summary.covered_seconds = 1e-9 * static_cast<double>(covered_);
    summary.blind_seconds = 1e-9 * static_cast<double>(blind_);
    summary.gaps = gaps_;
  }
  summary.steps = steps_.load(std::memory_order_relaxed);
  summary.whole_steps = whole_steps_.load(std::memory_order_relaxed);
  const std::lock_guard lock(harvest_mutex_);
  const std::uint64_t epoch = epoch_.load(std::memory_order_relaxed);
  harvest_.drain(epoch);
  // A wait that comes later than that belongs to no copy, and at the end none comes any more.
  constexpr std::int64_t kSecond = 1'000'000'000;
  harvest_.summarise(summary, epoch, world_.now() - (has_ended_ ? 0 : kSecond));
  return summary;
}

void CuptiLedger::in_forked_child() noexcept {
  is_open_.store(false);
  is_due_.store(false);
  is_dead_.store(true);
}

}  // namespace gradvane::collectors
