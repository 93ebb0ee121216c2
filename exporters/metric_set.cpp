#include "exporters/metric_set.hpp"

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "exporters/user_families.hpp"

namespace gradvane::exporters {

using record::LabelInfo;
using record::Metric;
using record::MetricInfo;
using record::MetricType;

namespace {

/// One series; exactly one pointer is set, into the registry.
struct Series {
  prometheus::Counter* counter = nullptr;
  prometheus::Gauge* gauge = nullptr;
  prometheus::Histogram* histogram = nullptr;
};

struct Family {
  prometheus::Family<prometheus::Counter>* counters = nullptr;
  prometheus::Family<prometheus::Gauge>* gauges = nullptr;
  prometheus::Family<prometheus::Histogram>* histograms = nullptr;
  std::unordered_map<std::string, Series> series;  ///< key: the label values, joined
  std::map<std::string, Exemplar> exemplars;       ///< by the same key
};

constexpr char kSeparator = '\x1f';  // in no label value of ours

std::string key_of(MetricSet::LabelValues labels) {
  std::string key;
  for (const std::string_view value : labels) key.append(value).push_back(kSeparator);
  return key;
}

/// Samples that one series of this metric adds to a scrape.
std::size_t weight_of(const MetricInfo& info) {
  if (info.type != MetricType::histogram) return 1;
  return record::step_duration_buckets().size() + 3;  // +Inf, _sum, _count
}

/// Of the series that are always there. An info metric has one whatever its labels say, and what has a
/// label only where several optimizers step has one without it.
bool counts_as_closed(const MetricInfo& info, std::size_t labels) {
  return info.type == MetricType::info || record::is_closed(info) ||
         (record::is_of_optimizer(info) && labels + 1 == info.labels.size());
}

bool has_these(const MetricInfo& info, MetricSet::LabelValues labels) {
  return labels.size() == info.labels.size() ||
         (labels.size() + 1 == info.labels.size() && record::is_of_optimizer(info));
}

std::size_t closed_capacity() {
  std::size_t total = 0;
  for (const MetricInfo& info : record::metric_catalogue()) {
    const bool is_of_optimizer = record::is_of_optimizer(info);
    if (!counts_as_closed(info, info.labels.size() - (is_of_optimizer ? 1 : 0))) continue;
    std::size_t series = 1;
    if (info.type != MetricType::info) {
      for (const LabelInfo& label : info.labels)
        if (!label.optional) series *= label.values.size();
    }
    total += series * weight_of(info);
  }
  return total;
}

}  // namespace

struct MetricSet::Store {
  prometheus::Registry registry;
  std::array<Family, record::kMetrics> families;
  std::mutex collectables_mutex;
  std::vector<std::weak_ptr<prometheus::Collectable>> collectables;
  FixedLabels fixed;
  std::size_t max_series = 0;
  std::size_t closed_reserve = closed_capacity();
  std::size_t closed_used = 0;
  std::size_t open_used = 0;
  std::unordered_set<std::size_t>
      dropped;  ///< hashes of series that did not fit, to count each once

  Series* find(Metric metric, const std::string& key) {
    auto& series = families[index_of(metric)].series;
    const auto found = series.find(key);
    return found == series.end() ? nullptr : &found->second;
  }

  /// Null where the series does not fit or the labels are not those of the catalogue.
  Series* find_or_create(Metric metric, LabelValues labels) {
    std::string key = key_of(labels);
    if (Series* series = find(metric, key)) return series;
    const MetricInfo& info = record::info_of(metric);
    if (!has_these(info, labels)) return nullptr;
    const bool is_closed = counts_as_closed(info, labels.size());
    if (!admit(info, is_closed, key)) return nullptr;
    Series& series = families[index_of(metric)].series[std::move(key)];
    series = create(info, labels);
    (is_closed ? closed_used : open_used) += weight_of(info);
    publish_size();
    return &series;
  }

  bool admit(const MetricInfo& info, bool is_closed, const std::string& key) {
    const std::size_t more = weight_of(info);
    const std::size_t taken = (is_closed ? closed_used : closed_reserve) + open_used;
    const bool fits = taken + more <= max_series;
    if (fits) return true;
    const std::size_t hash =
        std::hash<std::string>{}(key) ^ (index_of(info.metric) * 0x9e3779b97f4a7c15ULL);
    if (dropped.insert(hash).second) count(Metric::series_dropped_total, 1);
    return false;
  }

  Series create(const MetricInfo& info, LabelValues values) {
    prometheus::Labels labels;
    auto label = info.labels.begin();
    for (const std::string_view value : values) labels.emplace((label++)->name, value);

    const Family& family = families[index_of(info.metric)];
    Series series;
    if (family.counters != nullptr) series.counter = &family.counters->Add(labels);
    if (family.gauges != nullptr) series.gauge = &family.gauges->Add(labels);
    if (family.histograms != nullptr) {
      const auto bounds = record::step_duration_buckets();
      series.histogram = &family.histograms->Add(
          labels, prometheus::Histogram::BucketBoundaries(bounds.begin(), bounds.end()));
    }
    return series;
  }

  void publish_size() {
    if (Series* size = find(Metric::series, "")) {
      size->gauge->Set(static_cast<double>(closed_used + open_used));
    }
  }

  void count(Metric metric, double amount) {
    if (Series* series = find(metric, "")) series->counter->Increment(amount);
  }

  bool refuse() {
    count(Metric::nonfinite_values_refused_total, 1);
    return false;
  }

  void make_families(const prometheus::Labels& constant) {
    for (const MetricInfo& info : record::metric_catalogue()) {
      const std::string name(info.name);
      const std::string help(info.help);
      Family& family = families[index_of(info.metric)];
      switch (info.type) {
        case MetricType::counter:
          family.counters =
              &prometheus::BuildCounter().Name(name).Help(help).Labels(constant).Register(registry);
          break;
        case MetricType::gauge:
        case MetricType::info:
          family.gauges =
              &prometheus::BuildGauge().Name(name).Help(help).Labels(constant).Register(registry);
          break;
        case MetricType::histogram:
          family.histograms =
              &prometheus::BuildHistogram().Name(name).Help(help).Labels(constant).Register(
                  registry);
          break;
      }
    }
  }

  /// Every series of a metric whose label values are all known, at 0.
  void make_closed_series(const MetricInfo& info) {
    switch (info.labels.size()) {
      case 0:
        find_or_create(info.metric, {});
        return;
      case 1:
        for (const auto a : info.labels[0].values) find_or_create(info.metric, {a});
        return;
      default:
        for (const auto a : info.labels[0].values) {
          for (const auto b : info.labels[1].values) find_or_create(info.metric, {a, b});
        }
    }
  }
};

MetricSet::MetricSet(const record::RunInfo& run, MetricSetOptions options)
    : store_(std::make_unique<Store>()) {
  store_->max_series = options.max_series;
  store_->fixed = {{"run", run.run}, {"rank", std::to_string(run.rank)}};
  store_->make_families({store_->fixed.begin(), store_->fixed.end()});
  // These three first: the others are counted in them.
  for (const Metric metric :
       {Metric::series, Metric::series_dropped_total, Metric::nonfinite_values_refused_total}) {
    store_->make_closed_series(record::info_of(metric));
  }
  for (const MetricInfo& info : record::metric_catalogue()) {
    if (info.from_start) store_->make_closed_series(info);
  }
  set(Metric::series_limit, static_cast<double>(options.max_series));
}

MetricSet::~MetricSet() = default;

bool MetricSet::set(Metric metric, double value, LabelValues labels) noexcept try {
  const std::scoped_lock lock(mutex_);
  if (!std::isfinite(value)) return store_->refuse();
  const Series* series = store_->find_or_create(metric, labels);
  if (series == nullptr || series->gauge == nullptr) return false;
  series->gauge->Set(value);
  return true;
} catch (...) {
  return false;
}

bool MetricSet::add(Metric metric, double amount, LabelValues labels) noexcept try {
  const std::scoped_lock lock(mutex_);
  if (!std::isfinite(amount)) return store_->refuse();
  if (amount < 0) return false;
  const Series* series = store_->find_or_create(metric, labels);
  if (series == nullptr || series->counter == nullptr) return false;
  series->counter->Increment(amount);
  return true;
} catch (...) {
  return false;
}

bool MetricSet::raise_to(Metric metric, double total, LabelValues labels) noexcept try {
  const std::scoped_lock lock(mutex_);
  if (!std::isfinite(total)) return store_->refuse();
  const Series* series = store_->find_or_create(metric, labels);
  if (series == nullptr || series->counter == nullptr) return false;
  const double more = total - series->counter->Value();
  if (more > 0) series->counter->Increment(more);
  return true;
} catch (...) {
  return false;
}

bool MetricSet::observe(Metric metric, double value, LabelValues labels) noexcept try {
  const std::scoped_lock lock(mutex_);
  // prometheus-cpp would file NaN under the lowest bucket and make the sum NaN for good.
  if (!std::isfinite(value)) return store_->refuse();
  const Series* series = store_->find_or_create(metric, labels);
  if (series == nullptr || series->histogram == nullptr) return false;
  series->histogram->Observe(value);
  return true;
} catch (...) {
  return false;
}

void MetricSet::remove(Metric metric, LabelValues labels) noexcept try {
  const std::scoped_lock lock(mutex_);
  Family& family = store_->families[index_of(metric)];
  const auto found = family.series.find(key_of(labels));
  if (found == family.series.end()) return;
  const Series& series = found->second;
  if (series.counter != nullptr) family.counters->Remove(series.counter);
  if (series.gauge != nullptr) family.gauges->Remove(series.gauge);
  if (series.histogram != nullptr) family.histograms->Remove(series.histogram);
  family.exemplars.erase(found->first);
  family.series.erase(found);
  const MetricInfo& info = record::info_of(metric);
  const bool is_closed = counts_as_closed(info, labels.size());
  (is_closed ? store_->closed_used : store_->open_used) -= weight_of(info);
  store_->publish_size();
} catch (...) {  // out of memory for the key: the series stays, which is stale but harmless
}

void MetricSet::set_exemplar(Metric counter, LabelValues labels, Exemplar::Labels event,
                             double time) noexcept try {
  const std::scoped_lock lock(mutex_);
  const std::string key = key_of(labels);
  const Series* series = store_->find(counter, key);
  if (series == nullptr || series->counter == nullptr) return;
  const MetricInfo& info = record::info_of(counter);
  Exemplar exemplar;
  exemplar.family = info.name;
  exemplar.labels = fitting_labels(std::move(event));
  exemplar.time = time;
  auto label = info.labels.begin();
  for (const std::string_view value : labels) exemplar.series.emplace_back((label++)->name, value);
  store_->families[index_of(counter)].exemplars.insert_or_assign(key, std::move(exemplar));
} catch (...) {  // out of memory: the counter goes without
}

std::vector<Exemplar> MetricSet::exemplars() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Exemplar> all;
  for (const Family& family : store_->families)
    for (const auto& [key, exemplar] : family.exemplars) all.push_back(exemplar);
  return all;
}

double MetricSet::value(Metric metric, LabelValues labels) const noexcept try {
  const std::scoped_lock lock(mutex_);
  const Series* series = store_->find(metric, key_of(labels));
  if (series != nullptr && series->counter != nullptr) return series->counter->Value();
  if (series != nullptr && series->gauge != nullptr) return series->gauge->Value();
  return std::numeric_limits<double>::quiet_NaN();
} catch (...) {
  return std::numeric_limits<double>::quiet_NaN();
}

void MetricSet::add_collectable(std::weak_ptr<prometheus::Collectable> collectable) {
  const std::scoped_lock lock(store_->collectables_mutex);
  std::erase_if(store_->collectables, [](const auto& known) { return known.expired(); });
  store_->collectables.push_back(std::move(collectable));
}

std::vector<prometheus::MetricFamily> MetricSet::collect() const {
  std::vector<prometheus::MetricFamily> families;
  std::vector<std::weak_ptr<prometheus::Collectable>> collectables;
  {
    const std::scoped_lock lock(mutex_);
    families = store_->registry.Collect();
  }
  {
    const std::scoped_lock lock(store_->collectables_mutex);
    collectables = store_->collectables;
  }

  std::unordered_map<std::string_view, std::size_t> order;
  for (const MetricInfo& info : record::metric_catalogue()) {
    order.emplace(info.name, index_of(info.metric));
  }
  std::ranges::sort(families, {}, [&](const auto& family) { return order[family.name]; });
  for (auto& family : families) {
    std::ranges::sort(family.metric, [](const auto& a, const auto& b) {
      return std::ranges::lexicographical_compare(
          a.label, b.label, [](const auto& x, const auto& y) { return x < y; });
    });
  }

  // Without the mutex: this is the user's code, which may be slow or call back.
  std::size_t left_out = 0;
  for (const auto& weak : collectables) {
    const auto collectable = weak.lock();
    if (!collectable) continue;
    try {
      left_out += append_user_families(families, collectable->Collect(), store_->fixed);
    } catch (...) {
      ++left_out;
    }
  }
  if (left_out > 0) {
    const std::scoped_lock lock(mutex_);
    store_->count(Metric::user_families_dropped_total, static_cast<double>(left_out));
  }
  return families;
}

}  // namespace gradvane::exporters
