#pragma once
// Whether another run of the same name is live on this machine.
#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "record/run_info.hpp"

namespace gradvane::exporters {

/// Whether a live process of another run writes to the run directory of `run`: one of the same name and rank, or, if
/// `has_shared_id`, one of the same name and any rank with another run_id. A process is live as long as it holds its
/// lock file. Changes nothing, never waits and follows no link. False if the directory cannot be read. Throws nothing
/// except std::bad_alloc.
/// @param named          the directory that the user named; empty: the default directory
/// @param has_shared_id  all ranks of the run have its run_id, so it shows which processes are other runs
[[nodiscard]] bool is_name_taken(const std::filesystem::path& named, const record::RunInfo& run,
                                 bool has_shared_id, uid_t owner = ::geteuid());

}  // namespace gradvane::exporters
