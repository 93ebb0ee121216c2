#pragma once
// What the sync ledger knows, as a JSON document. The API answers with it, and a report that is written to a
// file holds the same.
#include <cstddef>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "record/run/run_info.hpp"
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

}  // namespace gradvane::exporters
