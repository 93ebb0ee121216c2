#include "record/run/launchers.hpp"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>

#include "record/run/process_start.hpp"

namespace gradvane::record {
namespace {

struct Launcher {
  const char* rank;
  const char* local_rank;
  const char* world_size;
  bool is_slurm;
};

/// The nearest launcher first. mpirun under Slurm starts one helper per node with srun, so its processes have a
/// SLURM_PROCID too: that of the helper.
constexpr std::array kLaunchers{
    Launcher{"RANK", "LOCAL_RANK", "WORLD_SIZE", false},
    Launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", false},
    Launcher{"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", false},
    Launcher{"SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", true},
    Launcher{"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", true},
    // An Indexed Job of Kubernetes numbers its pods. A pod that starts several ranks has a launcher that names them.
    Launcher{"JOB_COMPLETION_INDEX", "LOCAL_RANK", "WORLD_SIZE", false},
};

/// Slurm numbers the steps that srun starts from 0. The highest numbers are for the batch script and for interactive
/// shells, whose processes are no tasks.
constexpr std::uint32_t kFirstReservedStep = 0xffffff00U;

std::string text_of(const Environment& environment, const char* name) {
  return environment(name).value_or("");
}

bool is_in_srun(const Environment& environment) {
  const std::string step = text_of(environment, "SLURM_STEP_ID");
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), number);
  return error == std::errc{} && end == step.data() + step.size() && number < kFirstReservedStep;
}

/// A restart has the variables of the first start, except for its count.
std::string with_restarts(std::string id, const std::string& restarts) {
  if (restarts.empty() || restarts == "0") return id;
  return std::move(id) + "-restart" + restarts;
}

std::string torchrun_id(const Environment& environment) {
  std::string id = text_of(environment, "TORCHELASTIC_RUN_ID");
  if (id == "none") return {};  // what torchrun sets if no one named the run
  return id;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::optional<LauncherNumber> launcher_number(RankNumber number, const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.is_slurm && !is_in_srun(environment)) continue;
    const char* name = number == RankNumber::rank         ? launcher.rank
                       : number == RankNumber::local_rank ? launcher.local_rank
                                                          : launcher.world_size;
    if (auto text = environment(name)) return LauncherNumber{name, *std::move(text)};
  }
  return std::nullopt;
}

std::string launcher_run_id(const Environment& environment) {
  const std::string restarts = text_of(environment, "TORCHELASTIC_RESTART_COUNT");
  if (std::string id = torchrun_id(environment); !id.empty())
    return with_restarts(std::move(id), restarts);
  const std::string job = text_of(environment, "SLURM_JOB_ID");
  if (!job.empty() && is_in_srun(environment)) {
    std::string id = job + "." + text_of(environment, "SLURM_STEP_ID");
    id = with_restarts(std::move(id), text_of(environment, "SLURM_RESTART_COUNT"));
    return with_restarts(std::move(id), restarts);
  }
  return text_of(environment, "PMIX_NAMESPACE");
}

std::string parent_run_id(const Environment& environment) {
  const bool is_on_one_node = text_of(environment, "GROUP_WORLD_SIZE") == "1";
  if (!is_on_one_node || !environment("TORCHELASTIC_RUN_ID")) return {};
  const pid_t parent = ::getppid();
  const auto ticks = process_start_ticks(parent);
  if (!ticks) return {};
  return with_restarts("torchrun-" + std::to_string(parent) + "-" + std::to_string(*ticks),
                       text_of(environment, "TORCHELASTIC_RESTART_COUNT"));
}

std::string new_run_id(double time) {
  const auto seconds = static_cast<std::time_t>(time);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%S", &utc);
  std::array<char, 8> digits{};
  (void)std::snprintf(digits.data(), digits.size(), "-%04x", std::random_device{}() & 0xffffU);
  return std::string(text.data(), length) + digits.data();
}

std::string unnamed_run_id(double time, const Environment& environment) {
  std::string parent = parent_run_id(environment);
  return parent.empty() ? new_run_id(time) : parent;
}

}  // namespace gradvane::record
