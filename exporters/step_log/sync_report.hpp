#pragma once
// What /api/v1/syncs says, in a file: for whoever started a run and wants to know when it is over.
#include <filesystem>
#include <string>

#include "record/run/run_info.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::exporters {

/// Writes it beside `path` and puts it in place whole. With more than one process in the world .rank<R> is
/// put before the suffix. A `path` that is a directory, or ends with a slash, gets a file for each process:
/// syncs.<pid>.json. Returns what went wrong; empty: nothing.
[[nodiscard]] std::string write_sync_report(const std::filesystem::path& path,
                                            const record::SyncSummary& syncs,
                                            const record::RunInfo& run) noexcept;

}  // namespace gradvane::exporters
