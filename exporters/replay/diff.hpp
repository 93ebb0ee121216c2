#pragma once
// Two recordings side by side, or two moments: where they part, and in what.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "exporters/replay/recording.hpp"

namespace gradvane::exporters::recording {

/// One side: a recording, and the step to look at where one was asked for (FILE@STEP).
struct DiffSide {
  std::string name;
  const Recording* recording = nullptr;
  std::optional<std::int64_t> run_step;
};

struct DiffOptions {
  double tolerance = 1e-3;  ///< relative; less is rounding, more is another run
  std::size_t most = 10;    ///< groups and parameters listed, each
};

/// A number that is not the same in both. Absent: it is not in that one.
struct Difference {
  std::int64_t run_step = 0;
  std::string what;
  std::optional<double> a;
  std::optional<double> b;
};

struct SettingDifference {
  std::string key;
  std::optional<std::string> a;
  std::optional<std::string> b;
};

/// One number of one group or parameter at the moment that is compared.
struct RatioDifference {
  std::string name;
  std::string what;  ///< the words of the number table, or how much of a site was not finite
  double a = 0;
  double b = 0;
  double log_ratio = 0;  ///< of b to a
};

struct Diff {
  std::string a;
  std::string b;
  std::vector<SettingDifference>
      settings;  ///< of the run as well: version, torch_version, world_size
  std::vector<std::string> params_only_in_a;
  std::vector<std::string> params_only_in_b;
  std::vector<std::string>
      params_changed;  ///< of another shape or dtype, "name: what it is in each"

  std::int64_t common_steps = 0;
  std::int64_t first_common = 0;
  std::int64_t last_common = 0;
  std::optional<Difference> first_rate;    ///< the first learning rate that differs
  std::optional<Difference> first_bits;    ///< the first number that differs in any bit
  std::optional<Difference> first_beyond;  ///< ... by more than the tolerance
  double tolerance = 0;

  std::optional<std::int64_t> moment_a;  ///< run steps that groups and parameters are compared at
  std::optional<std::int64_t> moment_b;
  bool has_nonfinite = false;  ///< there, in either: norms of what is not finite are not compared
  std::vector<RatioDifference> groups;  ///< farthest apart first
  std::vector<RatioDifference> params;
  std::string problem;  ///< for a person: why something is not compared
};

[[nodiscard]] Diff diff_of(const DiffSide& a, const DiffSide& b, const DiffOptions& options = {});

[[nodiscard]] std::string text_of(const Diff& diff);
[[nodiscard]] nlohmann::ordered_json to_json(const Diff& diff);

}  // namespace gradvane::exporters::recording
