#include "collectors/sync_ledger/call_intake.hpp"

#include <utility>

namespace gradvane::collectors {
namespace {

/// What a thread keeps for the ledger it is counted by.
struct ThreadState {
  ThreadTable* table = nullptr;
  const void* owner = nullptr;  ///< the intake that the table is of
  const char* scope = nullptr;
  std::int32_t own = 0;
  std::uint32_t without = 0;  ///< callbacks that found no table
  bool ends_steps = false;
};

// In the block of thread-local memory that every thread has from its birth: nothing is allocated when a
// callback first looks.
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadState this_thread;

}  // namespace

bool CallIntake::make_room() noexcept {
  if (!has_room_) has_room_ = tables_.open() && places_.open();
  return has_room_;
}

void CallIntake::take(cupti::Domain domain, std::uint32_t id, const cupti::CallbackData& data,
                      std::uint64_t generation) noexcept {
  const CudaCall* call = cuda_call(domain, id);
  if (call == nullptr) return;
  ThreadTable* const table = this->table(*call, data.site);
  if (table == nullptr) return;
  CallCounter::Circumstances now;
  now.now = now_();
  now.generation = generation;
  now.epoch = epoch();
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

record::SyncPart CallIntake::part_of(std::uint64_t epoch) const noexcept {
  if (is_start_up(epoch)) return record::SyncPart::start_up;
  // Of a thread that ends steps the table says so, from its first call on.
  if (this_thread.own <= 0 && this_thread.table->is_of_training == 0)
    return record::SyncPart::other_threads;
  return outside_.load(std::memory_order_relaxed) > 0 ? record::SyncPart::between_steps
                                                      : record::SyncPart::in_steps;
}

ThreadTable* CallIntake::table(const CudaCall& call, cupti::Site site) noexcept {
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

void CallIntake::own(int delta) noexcept { this_thread.own += delta; }

const char* CallIntake::set_scope(const char* name) noexcept {
  return std::exchange(this_thread.scope, name);
}

void CallIntake::settle_thread() noexcept {
  this_thread.ends_steps = true;
  if (this_thread.table == nullptr || this_thread.owner != this) return;
  std::atomic_ref(this_thread.table->is_of_training).store(1, std::memory_order_relaxed);
  // Before the step is judged: its last copy would be booked on it too late.
  this_thread.table->settle_copy();
}

std::int64_t CallIntake::polls() noexcept {
  std::int64_t sum = tables_.polls_of_the_gone();
  tables_.for_each([&](ThreadTable& table) {
    if (std::atomic_ref(table.is_of_training).load(std::memory_order_relaxed) != 0)
      sum += std::atomic_ref(table.polls[0]).load(std::memory_order_relaxed);
  });
  return sum;
}

}  // namespace gradvane::collectors
