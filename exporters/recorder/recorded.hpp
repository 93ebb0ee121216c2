#pragma once
// What the flight recorder holds. The ring on disk and the incident files are written from it.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "exporters/metric_set.hpp"
#include "exporters/recorder/standing_records.hpp"
#include "exporters/recorder/step_memory.hpp"

namespace gradvane::exporters::recording {

/// What the recorder has done and not done. Of the worker thread.
struct RecorderCounts {
  std::int64_t steps = 0;            ///< taken
  std::int64_t steps_too_large = 0;  ///< that the memory alone could not hold
  std::int64_t files = 0;            ///< written
  std::int64_t files_failed = 0;     ///< not written, or not completed
  std::int64_t files_spared = 0;     ///< not written, because there were too many lately
  std::int64_t ring_failures = 0;    ///< the ring was not made, or lost
  std::int64_t ring_too_small = 0;   ///< frames that it cannot hold
};

/// The last steps, and what a reader needs besides them. Of the worker thread.
class Recorded {
 public:
  /// `metrics` may be null.
  Recorded(std::size_t bytes, std::size_t steps, std::shared_ptr<MetricSet> metrics)
      : memory(bytes, steps), metrics_(std::move(metrics)) {}

  StandingRecords standing;
  FrameMaker maker;
  StepMemory memory;
  RecorderCounts counts;

  /// One recording more in gradvane_recordings_total.
  void count_recording(bool ok) noexcept {
    if (metrics_) metrics_->add(record::Metric::recordings_total, 1, {ok ? "ok" : "failed"});
  }
  /// Puts the frame that ends a file, or what a file has so far.
  void append_end(std::string& out, std::string_view reason, bool run_is_over);

 private:
  std::shared_ptr<MetricSet> metrics_;
};

}  // namespace gradvane::exporters::recording
