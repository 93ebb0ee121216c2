#pragma once
// What a recording tells whoever was woken: what was normal, what moved first, what broke, what came after, and
// how it ended.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "exporters/replay/drift.hpp"
#include "exporters/replay/recording.hpp"

namespace gradvane::exporters::recording {

/// How the recording ends, which need not be how the run did.
enum class Ending : std::uint8_t {
  finished,  ///< the run, as it should
  failed,    ///< the run, with an error
  went_on,   ///< the file was written while the run went on
  abrupt,    ///< nobody said anything: killed, or the machine died
};

struct Normal {
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::optional<Spread> loss;
  std::optional<Spread> grad_norm;
  std::optional<Spread> step_seconds;
};

/// The first bad step, where no incident says more.
struct FirstBadStep {
  std::int64_t run_step = 0;
  record::FirstNonfinite what;
  std::string param;
};

struct After {
  std::int64_t steps = 0;    ///< recorded after the fault
  std::int64_t bad = 0;      ///< of them with values that were not finite
  std::int64_t skipped = 0;  ///< of them that left the weights as they were
  std::optional<double> last_loss;
};

/// What is known of the weights, which are read seldom. Run steps of reads.
struct Weights {
  std::optional<std::int64_t> found_bad;    ///< the first that was not finite
  std::optional<std::int64_t> last_finite;  ///< before that; the last of all where none was bad
};

struct Story {
  std::optional<record::RunInfo> run;
  std::int64_t steps = 0;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  double last_time = 0;               ///< seconds since the epoch
  std::int64_t missing = 0;           ///< steps between the first and the last that are not in it
  std::optional<std::int64_t> fault;  ///< run step
  std::optional<Normal> normal;
  std::vector<Moved> moved;
  std::optional<record::Incident> broke;  ///< the gravest, and of those the first
  std::optional<FirstBadStep> first_bad;
  std::vector<record::Incident> others;
  std::optional<After> after;
  Weights weights;
  Ending ending = Ending::abrupt;
  std::string reason;  ///< of the ending, as it was given
  bool is_ring = false;
  Damage damage;
};

[[nodiscard]] Story story_of(const Recording& recording);

[[nodiscard]] std::string text_of(const Story& story);
[[nodiscard]] nlohmann::ordered_json to_json(const Story& story);

/// In one sentence.
[[nodiscard]] std::string ending_of(const Story& story);

}  // namespace gradvane::exporters::recording
