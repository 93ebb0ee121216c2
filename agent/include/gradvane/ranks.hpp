#pragma once
// How the ranks of a run reach each other: for Options::ranks = agree in a C++ program.
#include <functional>
#include <string>
#include <vector>

namespace gradvane {

/// Gives `mine` to all ranks of the run, and returns what each of them gave, by rank. All give
/// equally many bytes: at most 256, or between nodes those of a node's ranks, 112 for each. It is called on the thread that trains, on every rank, at the
/// same place of each step. It waits for the slowest rank, and throws if one cannot be reached or
/// does not come in time. It must not share a communicator with the program's own collectives.
using AllGather = std::function<std::vector<std::string>(const std::string& mine)>;

/// Makes an AllGather among some ranks alone, in the order given. It is called on these ranks, in the
/// first step, if the ranks of a run are on several nodes: with the first rank of each.
using GatherAmong = std::function<AllGather(const std::vector<int>& ranks)>;

}  // namespace gradvane
