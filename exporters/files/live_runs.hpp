#pragma once
// Whether the name of a run is taken: another run of that name is live on this machine.
#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "record/run/run_info.hpp"

namespace gradvane::exporters {

/// The run_id of the live process because of which `run` cannot have its name: one of the same name and rank, or, if
/// `has_shared_id`, one of the same name and any rank with another run_id. Empty text if that process is just starting,
/// absent if the name is free. A process is live as long as it holds its lock file. Changes nothing, never waits and
/// follows no link. The name is free if the directory cannot be read. Throws nothing except std::bad_alloc.
/// @param named          the directory that the user named; empty: the default directory
/// @param has_shared_id  all ranks of the run have its run_id, so it shows which processes are other runs
[[nodiscard]] std::optional<std::string> holder_of_name(const std::filesystem::path& named,
                                                        const record::RunInfo& run,
                                                        bool has_shared_id,
                                                        uid_t owner = ::geteuid());

}  // namespace gradvane::exporters
