#pragma once
// The metrics of one run, held in a registry of prometheus-cpp and named by the catalogue.
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "exporters/exemplar.hpp"
#include "record/metric_catalogue.hpp"
#include "record/run/run_info.hpp"

namespace prometheus {
class Collectable;
struct MetricFamily;
}  // namespace prometheus

namespace gradvane::exporters {

struct MetricSetOptions {
  /// Most series of ours, histogram buckets counted one by one. A series with labels that are not known
  /// beforehand (group, user metric) never takes the place of one that is always there.
  std::size_t max_series = 2000;
};

/// Threading: any thread, through one mutex; the training thread calls add_collectable() at most, which
/// does not take it. Nothing throws once
/// the constructor is through. Every series carries `run` and `rank`; `labels` are the values of the
/// other labels, in the catalogue's order; an optional one comes last and may be left out.
///
/// A series exists from its first value on; those the catalogue calls `from_start` exist at once. NaN
/// and infinity are refused, counted in gradvane_nonfinite_values_refused_total, and leave the last
/// finite value standing. The calls return false where a value was refused or a series did not fit.
class MetricSet {
 public:
  using LabelValues = std::initializer_list<std::string_view>;

  explicit MetricSet(const record::RunInfo& run, MetricSetOptions options = {});
  ~MetricSet();
  MetricSet(const MetricSet&) = delete;  // its registry hands out references
  MetricSet& operator=(const MetricSet&) = delete;

  /// Gauges and infos.
  bool set(record::Metric metric, double value, LabelValues labels = {}) noexcept;
  /// Counters: `amount` >= 0, which may be 0 to make the series exist.
  bool add(record::Metric metric, double amount, LabelValues labels = {}) noexcept;
  /// Counters whose total is kept elsewhere: moves the counter up to `total`, never down.
  bool raise_to(record::Metric metric, double total, LabelValues labels = {}) noexcept;
  /// Histograms.
  bool observe(record::Metric metric, double value, LabelValues labels = {}) noexcept;
  /// Takes a series away, where what it measured is gone.
  void remove(record::Metric metric, LabelValues labels = {}) noexcept;

  /// Replaces the exemplar of a counter's series. A series that does not exist has none.
  void set_exemplar(record::Metric counter, LabelValues labels, Exemplar::Labels event,
                    double time) noexcept;
  /// The exemplars of all series that have one. Throws std::bad_alloc only.
  [[nodiscard]] std::vector<Exemplar> exemplars() const;

  /// The value of a counter or gauge; NaN where there is no such series.
  [[nodiscard]] double value(record::Metric metric, LabelValues labels = {}) const noexcept;

  /// While the result lives a scrape waits, so that it sees a step whole or not at all.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> hold() const {
    return std::unique_lock(mutex_);
  }

  /// Publishes metrics of the user's own beside ours. They get `run` and `rank` where they have none.
  /// A family that is malformed, or whose name is taken, is left out and counted.
  void add_collectable(std::weak_ptr<prometheus::Collectable> collectable);

  /// Everything, ours in the catalogue's order and sorted by labels, then the user's. Throws
  /// std::bad_alloc only.
  [[nodiscard]] std::vector<prometheus::MetricFamily> collect() const;

 private:
  struct Store;

  mutable std::recursive_mutex mutex_;
  std::unique_ptr<Store> store_;
};

}  // namespace gradvane::exporters
