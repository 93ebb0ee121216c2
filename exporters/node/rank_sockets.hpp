#pragma once
// The unix sockets in a run directory on which the ranks of one node answer.
#include <cstdint>
#include <string>
#include <vector>

namespace gradvane::exporters {

/// A word for what shares ports and process numbers: this machine since it was started, and the namespaces of both.
/// Ranks on several machines, or in several containers, may share a run directory; each of those is a node.
/// Eight hexadecimal digits. Throws std::bad_alloc only.
[[nodiscard]] std::string word_of_node();

/// rank<R>.<word of the node>.sock
[[nodiscard]] std::string rank_socket(std::int32_t rank, const std::string& node);

/// The ranks of this node that have a socket in the open directory, lowest first. Some may be dead.
/// Throws std::bad_alloc only.
[[nodiscard]] std::vector<std::int32_t> ranks_with_socket(int directory, const std::string& node);

}  // namespace gradvane::exporters
