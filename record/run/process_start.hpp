#pragma once
// When a process began: numbers of processes come again, and with it one is told from the next.
#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace gradvane::record {

/// In clock ticks since the machine started. Absent if there is no such process, or if it has ended and its parent
/// has not collected it yet.
[[nodiscard]] std::optional<std::uint64_t> process_start_ticks(pid_t process);

}  // namespace gradvane::record
