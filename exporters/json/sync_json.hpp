#pragma once
// What the sync ledger knows, as a JSON document. The API answers with it, and a report that is written to a
// file holds the same.
#include <cstddef>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "record/run_info.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::exporters {

/// Which sites a document lists. Totals are those of all, whatever is chosen.
struct SyncChoice {
  std::optional<record::SyncOrigin> origin;  ///< absent: of every origin
  std::size_t limit = std::numeric_limits<std::size_t>::max();
};

/// With the keys of docs/api/syncs.schema.json, but for `run` and `rank`. Sites are sorted by seconds.
[[nodiscard]] nlohmann::ordered_json to_json(const record::SyncSummary& syncs,
                                             const SyncChoice& choice = {});
/// The whole document.
[[nodiscard]] nlohmann::ordered_json to_json(const record::SyncSummary& syncs,
                                             const record::RunInfo& run,
                                             const SyncChoice& choice = {});

/// The chosen sites, most time first.
[[nodiscard]] std::vector<const record::SyncSite*> choose_sites(const record::SyncSummary& syncs,
                                                                const SyncChoice& choice = {});

/// Of those in steps, per step that was counted from end to end; absent before the first.
[[nodiscard]] std::optional<double> calls_per_step(const record::SyncSummary& syncs,
                                                   const record::SyncSite& site);

/// Of the time that was counted; above 1 where several threads waited at once.
[[nodiscard]] std::optional<double> share_of_time(const record::SyncSummary& syncs,
                                                  const record::SyncSite& site);

}  // namespace gradvane::exporters
