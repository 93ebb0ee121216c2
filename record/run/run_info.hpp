#pragma once
// What stays the same while a run lasts, or changes only when the model does.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/names.hpp"

namespace gradvane::record {

enum class RunState : std::uint8_t { starting, running, stalled, finished, failed };
template <>
[[gnu::visibility("hidden")]] inline constexpr auto kNames<RunState> =
    std::to_array<std::string_view>({"starting", "running", "stalled", "finished", "failed"});

/// One option as it came out: what it is, and where the value came from.
struct Setting {
  std::string key;
  std::string value;
  std::string source;  ///< default, code, yaml, environment or command line
  double since = 0;    ///< when it changed last, seconds since the epoch; 0: it has not
};

struct RunInfo {
  std::string run;
  std::string run_id;  ///< tells apart the runs of one name; empty: not known
  std::int32_t rank = 0;
  std::int32_t local_rank = 0;
  std::int32_t world_size = 1;
  std::string host;
  std::int64_t pid = 0;
  std::string version;  ///< of gradvane
  std::string torch_version;
  double start_time = 0;  ///< seconds since the epoch
  std::vector<Setting> settings;
};

struct ParamInfo {
  std::string name;                  ///< dotted, as the module names it
  std::vector<std::string> aliases;  ///< further names of a tied parameter
  std::int32_t group = 0;            ///< index into ModelInfo::groups
  std::vector<std::int64_t> shape;
  std::int64_t numel = 0;
  std::string dtype;
  std::string device;
  bool requires_grad = true;
};

/// A device that holds parameters.
struct DeviceInfo {
  std::string device;  ///< as torch names it: cuda:0
  std::string uuid;    ///< as NVML writes it
  std::string name;

  friend bool operator==(const DeviceInfo&, const DeviceInfo&) = default;
};

/// The parameters being watched. Replaced as a whole when the model changes; `id` tells versions apart.
struct ModelInfo {
  std::uint64_t id = 0;
  std::vector<ParamInfo> params;
  std::vector<std::string> groups;
  std::vector<std::string> optimizers;    ///< type name of each optimizer seen
  std::vector<std::string> user_metrics;  ///< names, index = StepRecord::user
  std::vector<DeviceInfo> devices;        ///< CUDA devices of the parameters

  /// Empty for an index that none of them has, as the loss's -1.
  [[nodiscard]] std::string param_name(std::int32_t index) const {
    const bool is_there = index >= 0 && static_cast<std::size_t>(index) < params.size();
    return is_there ? params[static_cast<std::size_t>(index)].name : std::string();
  }
};

}  // namespace gradvane::record
