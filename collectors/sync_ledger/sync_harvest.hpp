#pragma once
// Reads the tables of all threads: what each step had, and what the process has had so far.
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "collectors/sync_ledger/places/place_store.hpp"
#include "collectors/sync_ledger/table_pool.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::collectors {

/// Not thread-safe: one reader at a time.
class SyncHarvest {
 public:
  SyncHarvest(TablePool& tables, const PlaceStore& places) : tables_(tables), places_(places) {}

  /// Takes what threads have written since the last time. `epoch`: the one in progress.
  void drain(std::uint64_t epoch);

  /// The syncs that began in the epochs after `begin` up to `end`. False where some of them are not known
  /// any more, or never were. drain() comes before.
  bool step(std::uint64_t begin, std::uint64_t end, record::StepSyncs& syncs);
  /// The same by place, of one origin, most calls first.
  [[nodiscard]] std::vector<record::StepSyncSite> sites_of_step(std::uint64_t begin,
                                                                std::uint64_t end,
                                                                record::SyncOrigin origin);

  /// Fills totals, parts, phases, polls, drops and sites. `epoch`: the one in progress, whose calls are in no
  /// step yet. A copy whose thread has made no call since `settled` counts for itself.
  void summarise(record::SyncSummary& summary, std::uint64_t epoch, std::int64_t settled);

 private:
  static constexpr std::size_t kKnownEpochs = 4096;
  static constexpr std::size_t kKnownLosses = 256;

  struct Tally {
    SyncKey key;
    std::int64_t calls = 0;
    std::int64_t nanoseconds = 0;
    std::int64_t longest = 0;
  };
  using Epoch = std::vector<Tally>;
  using SiteName = std::tuple<std::string, std::int32_t, std::string, int, int, int>;

  void drain(ThreadTable& table);
  void reclaim();
  void retire(ThreadTable& table);
  static void add(std::vector<Tally>& tallies, const Tally& tally);
  template <typename Take>
  static void for_each_tally(ThreadTable& table, Take take);
  void add(record::SyncSummary& summary, std::map<SiteName, std::size_t>& known,
           const Tally& tally);
  void take_out_of_steps(record::SyncSummary& summary, std::map<SiteName, std::size_t>& known,
                         const Tally& tally);
  record::SyncSite& site_of(record::SyncSummary& summary, std::map<SiteName, std::size_t>& known,
                            const SyncKey& key);
  [[nodiscard]] Epoch tallies_between(std::uint64_t begin, std::uint64_t end);
  [[nodiscard]] record::SyncSite describe(const SyncKey& key) const;
  static SyncKey key_in(const ThreadTable& table, std::uint32_t cell) noexcept;

  TablePool& tables_;
  const PlaceStore& places_;
  std::map<std::uint64_t, Epoch> epochs_;
  std::uint64_t drained_to_ = 0;
  std::int64_t events_dropped_ = 0;
  struct Stretch {
    std::uint64_t from;
    std::uint64_t to;
  };
  std::deque<Stretch> lossy_;  ///< of epochs, some of whose events are lost
  std::vector<Tally> retired_;
  std::array<std::int64_t, record::kSyncDrops> retired_drops_{};
  std::array<record::SyncTally, record::kSyncOrigins> retired_polls_{};
  std::map<SiteName, std::int64_t> site_ids_;
  mutable std::map<PlaceId, record::SyncSite> described_;
};

}  // namespace gradvane::collectors
