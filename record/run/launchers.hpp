#pragma once
// What launchers put into the environment of the processes that they start: ranks, and what one run of theirs is
// called.
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gradvane::record {

/// Looks up an environment variable; absent if it is not set. Injected, so that tests need no setenv.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
[[nodiscard]] Environment process_environment();

enum class RankNumber { rank, local_rank, world_size };

struct LauncherNumber {
  std::string_view variable;
  std::string text;
};
/// The variable of the first launcher that has set one: torchrun's names, Open MPI, MPICH and Intel MPI, then Slurm
/// inside srun, then an Indexed Job of Kubernetes.
[[nodiscard]] std::optional<LauncherNumber> launcher_number(RankNumber number,
                                                            const Environment& environment);

/// The identity of the run that the launcher started, the same in all of its processes. A run that Slurm or torchrun
/// starts again after a failure has another. Empty if the launcher gave none.
[[nodiscard]] std::string launcher_run_id(const Environment& environment);

/// For a run that has no other identity: the UTC time and four random digits, such as 20261124T034152-9f3c.
/// @param time  seconds since the epoch
[[nodiscard]] std::string new_run_id(double time);

/// For torchrun without --rdzv-id on one node: the parent process and when it began. All ranks have it as their parent,
/// unless a program stands between that starts each of them: so two processes with different answers may be one run.
/// Empty elsewhere.
[[nodiscard]] std::string parent_run_id(const Environment& environment);

/// For a run that neither its user nor a launcher has named: parent_run_id(), else new_run_id().
/// @param time  seconds since the epoch
[[nodiscard]] std::string unnamed_run_id(double time, const Environment& environment);

}  // namespace gradvane::record
