#pragma once
// The injected ledger as agents in the process get it: it knows how many of them there are.
#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collectors/sync_ledger/sync_ledger.hpp"

namespace gradvane::inject {

class AgentsLedger final : public collectors::SyncLedger {
 public:
  /// `last_has_left`: called when no agent is there any more, and one has ended steps. On its thread.
  AgentsLedger(SyncLedger& ledger, std::function<void()> last_has_left)
      : ledger_(ledger), last_has_left_(std::move(last_has_left)) {}

  /// Agents that have joined and not left. An agent that is there reports for the whole process.
  [[nodiscard]] int agents() const noexcept { return agents_.load(); }
  /// Whether one of them ever ended a step.
  [[nodiscard]] bool has_stepped() const noexcept { return has_stepped_.load(); }
  /// Before the driver has been to us, no agent is made to ask for the subscription: its thread would wait
  /// for the one that sets the driver up, and that one for the ledger.
  void note_driver() noexcept { has_driver_.store(true); }

  void join(const collectors::LedgerWish& wish) noexcept override {
    ++agents_;
    ledger_.join(wish);
  }
  void driver_comes() noexcept override { ledger_.driver_comes(); }
  void leave() noexcept override {
    ledger_.leave();
    if (--agents_ == 0 && has_stepped()) last_has_left_();
  }
  collectors::SyncMark end_step() noexcept override {
    has_stepped_.store(true, std::memory_order_relaxed);
    return ledger_.end_step();
  }
  void set_phase(std::uint8_t phase) noexcept override { ledger_.set_phase(phase); }
  void pass_over(const std::string& directory) noexcept override { ledger_.pass_over(directory); }
  void outside_steps(int delta) noexcept override { ledger_.outside_steps(delta); }
  void profiler_begins(const char* name) noexcept override { ledger_.profiler_begins(name); }
  void profiler_ended() noexcept override { ledger_.profiler_ended(); }
  void end() noexcept override { ledger_.end(); }
  void own(int delta) noexcept override { ledger_.own(delta); }
  const char* set_scope(const char* name) noexcept override { return ledger_.set_scope(name); }
  void look(bool may_subscribe) noexcept override {
    if (has_driver_.load()) ledger_.look(may_subscribe);
  }
  void collect() noexcept override { ledger_.collect(); }
  bool step(const collectors::SyncMark& begin, const collectors::SyncMark& end,
            record::StepSyncs& syncs) override {
    return ledger_.step(begin, end, syncs);
  }
  std::vector<record::StepSyncSite> sites_of_step(const collectors::SyncMark& begin,
                                                  const collectors::SyncMark& end,
                                                  record::SyncOrigin origin) override {
    return ledger_.sites_of_step(begin, end, origin);
  }
  record::SyncSummary summary() override { return ledger_.summary(); }

 private:
  SyncLedger& ledger_;
  std::function<void()> last_has_left_;
  std::atomic<int> agents_{0};
  std::atomic<bool> has_driver_{false};
  std::atomic<bool> has_stepped_{false};
};

}  // namespace gradvane::inject
