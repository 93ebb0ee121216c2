#pragma once
// How the ranks of a run reach each other: for Options::ranks = agree in a C++ program.
#include <functional>
#include <string>
#include <vector>

namespace gradvane {

/// Gives `mine` to its ranks, and returns what each of them gave, in their order. All give equally many
/// bytes in a call, and another number in the next. It is called on the thread that trains: by all of
/// its ranks, equally often. It waits for the slowest rank, and throws if one cannot be reached or does
/// not come in time. It must not share a communicator with the program's own collectives.
using AllGather = std::function<std::vector<std::string>(const std::string& mine)>;

/// Returns an AllGather among some ranks alone, in the order given. If the ranks of a run are on several
/// nodes, it is called in the first step by the first rank of each, with these ranks. It is not called
/// if each node has one rank, or a node has no shared memory.
using GatherAmong = std::function<AllGather(const std::vector<int>& ranks)>;

}  // namespace gradvane
