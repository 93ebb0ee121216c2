#pragma once
// The part of the page that says what the CPU waited for.
#include <string>

#include "exporters/board/status_board.hpp"

namespace gradvane::exporters {

/// How many host syncs a step of the training has, or why that is not known.
void append_sync_tile(std::string& html, const Status& status);

/// The places in the code that cost most time; one sentence where nothing is counted.
void append_sync_section(std::string& html, const record::SyncSummary& syncs);

}  // namespace gradvane::exporters
