#pragma once
// The numbers of the steps of one optimizer, over the whole run.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exporters/history/point_axis.hpp"
#include "record/run/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::exporters {

/// What one number was within a point; absent where it was never measured there.
struct Extent {
  double last = 0;
  double min = 0;
  double max = 0;
};

/// The optimizer's own count of the steps in a point. It may step in some run steps only, or several times
/// in one: what is missing shows here.
struct OwnSteps {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// Columns of equal length, one entry a point.
struct SeriesColumns {
  std::int64_t steps_per_point = 1;
  std::int64_t next = 0;
  std::vector<Point> points;
  std::vector<OwnSteps> own;
  struct Series {
    std::string name;
    std::vector<std::optional<Extent>> values;
  };
  std::vector<Series> series;  ///< those that were measured at least once
  std::array<std::vector<std::int64_t>, record::kSites> nonfinite;  ///< steps that were not finite
  std::vector<std::int64_t> skipped;                                ///< steps without an update
};

class SeriesHistory {
 public:
  static constexpr std::size_t kPoints = 1024;

  SeriesHistory();

  /// Where there is no memory it throws; columns are then as before, or lack this step.
  void take(const record::StepRecord& record, const record::ModelInfo& model);
  /// Points with a step after `since`.
  [[nodiscard]] SeriesColumns after(std::int64_t since) const;

 private:
  using Series = SeriesColumns::Series;
  void note(Series& series, std::optional<double> value) const;
  void join(const std::vector<std::size_t>& moved) noexcept;

  PointAxis axis_;
  std::vector<OwnSteps> own_;
  std::vector<Series>
      series_;  ///< those of the number table first, then what the loop logs, as it comes
  std::array<std::vector<std::int64_t>, record::kSites> nonfinite_;
  std::vector<std::int64_t> skipped_;
};

/// The same columns from records as they are: each is a point of its own.
[[nodiscard]] SeriesColumns exact_columns(const std::vector<record::StepRecord>& steps,
                                          const record::ModelInfo& model);

}  // namespace gradvane::exporters
