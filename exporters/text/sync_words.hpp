#pragma once
// The sync ledger in words for people.
#include <string>
#include <string_view>

#include "record/sync_summary.hpp"

namespace gradvane::exporters {

/// What the CPU waited for, or in: "a stream".
[[nodiscard]] std::string_view words_of(record::SyncKind kind);
/// Whose call it was: "the training".
[[nodiscard]] std::string_view words_of(record::SyncOrigin origin);
/// Why there are counts, or none: "there is no libcupti to count them with".
[[nodiscard]] std::string_view words_of(record::SyncReason reason);

/// Whether host syncs are being counted, and why not: one sentence. `detail` is in it, as it came.
[[nodiscard]] std::string sentence_of(const record::SyncSummary& syncs);
/// How much of the time was counted; empty where all of it was.
[[nodiscard]] std::string coverage_of(const record::SyncSummary& syncs);

}  // namespace gradvane::exporters
