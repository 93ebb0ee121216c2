#pragma once
// What runs that were killed left in the temporary directory, removed when it is old.
#include <sys/types.h>

#include <chrono>
#include <filesystem>

namespace gradvane::exporters {

/// A ring of a killed run is kept so long for someone to read it.
inline constexpr std::chrono::hours kOldRingAge{14 * 24};

/// Removes rings that nobody has written to for `age` and that no living process has a lock on, below
/// `base`/gradvane-<owner>. A run's directory that then holds endpoint files and locks alone goes as well;
/// recordings of incidents stay. Follows no link, looks at 4,096 directories at most, and throws nothing but
/// std::bad_alloc. Returns how many rings it removed.
int remove_old_rings(const std::filesystem::path& base, uid_t owner,
                     std::chrono::seconds age = kOldRingAge);

}  // namespace gradvane::exporters
