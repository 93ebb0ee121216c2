#pragma once
// The sync ledger in words for people.
#include <string>

#include "record/sync_summary.hpp"

namespace gradvane::exporters {

/// Whether host syncs are being counted, and why not: one sentence. `detail` is in it, as it came.
[[nodiscard]] std::string sentence_of(const record::SyncSummary& syncs);

}  // namespace gradvane::exporters
