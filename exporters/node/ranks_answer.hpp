#pragma once
// /api/v1/ranks of a node: where the ranks of the run are, and how each of them is.
#include <cstdint>
#include <map>
#include <string>

namespace gradvane::exporters {

/// Adds to each rank that is behind `url` what its status says, or that it does not answer. Ranks of other machines stay
/// as they are. Text that is not as a rank writes it is given back unchanged. Throws std::bad_alloc only.
/// @param ranks     what one rank answers to /api/v1/ranks
/// @param url       of the node
/// @param statuses  what ranks answer to /api/v1/status, by rank
[[nodiscard]] std::string ranks_with_statuses(const std::string& ranks, const std::string& url,
                                              const std::map<std::int32_t, std::string>& statuses);

}  // namespace gradvane::exporters
