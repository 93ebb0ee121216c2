#include "exporters/prometheus/exposition.hpp"

#include <prometheus/metric_family.h>

#include <algorithm>
#include <array>
#include <limits>

#include "exporters/http/accept_header.hpp"
#include "exporters/text/number_text.hpp"
#include "exporters/text/text_escape.hpp"

namespace gradvane::exporters {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::array<std::string_view, 3> kUnits{"seconds", "bytes", "ratio"};

/// A family as one format names it. OpenMetrics names families without the suffix of their samples.
struct Naming {
  std::string_view family;
  std::string_view sample;
  std::string_view type;
  std::string_view unit;
};

std::string_view text_type(MetricType type) {
  switch (type) {
    case MetricType::Counter:
      return "counter";
    case MetricType::Gauge:
      return "gauge";
    case MetricType::Summary:
      return "summary";
    case MetricType::Histogram:
      return "histogram";
    case MetricType::Untyped:
      break;
  }
  return "untyped";
}

bool all_ones(const MetricFamily& family) {
  return std::ranges::all_of(family.metric,
                             [](const ClientMetric& series) { return series.gauge.value == 1; });
}

std::string_view unit_of(std::string_view family) {
  for (const std::string_view unit : kUnits) {
    if (family.size() > unit.size() + 1 && family.ends_with(unit) &&
        family[family.size() - unit.size() - 1] == '_') {
      return unit;
    }
  }
  return {};
}

Naming openmetrics_naming(const MetricFamily& family) {
  const std::string_view name = family.name;
  const auto without = [&](std::string_view suffix) {
    return name.substr(0, name.size() - suffix.size());
  };
  const auto has = [&](std::string_view suffix) {
    return name.size() > suffix.size() && name.ends_with(suffix);
  };
  if (family.type == MetricType::Counter) {
    // Without the suffix OpenMetrics would call the series by another name than text 0.0.4 does.
    if (!has("_total")) return {name, name, "unknown", {}};
    return {without("_total"), name, "counter", unit_of(without("_total"))};
  }
  if (family.type == MetricType::Gauge && has("_info") && all_ones(family)) {
    return {without("_info"), name, "info", {}};
  }
  if (family.type == MetricType::Untyped) return {name, name, "unknown", unit_of(name)};
  return {name, name, text_type(family.type), unit_of(name)};
}

class Writer {
 public:
  Writer(std::string& out, ExpositionFormat format, std::span<const Exemplar> exemplars)
      : out_(out),
        is_open_(format == ExpositionFormat::openmetrics_1_0_0),
        exemplars_(is_open_ ? exemplars : std::span<const Exemplar>()) {}

  void write(const MetricFamily& family) {
    if (family.metric.empty()) return;
    const Naming naming = is_open_ ? openmetrics_naming(family)
                                   : Naming{family.name, family.name, text_type(family.type), {}};
    out_.append("# HELP ").append(naming.family).append(" ");
    if (is_open_) {
      append_quoted(out_, family.help);
    } else {
      append_help(out_, family.help);
    }
    out_.append("\n# TYPE ").append(naming.family).append(" ").append(naming.type).append("\n");
    if (!naming.unit.empty()) {
      out_.append("# UNIT ").append(naming.family).append(" ").append(naming.unit).append("\n");
    }
    for (const ClientMetric& series : family.metric) write_series(family.type, naming, series);
  }

 private:
  void write_series(MetricType type, const Naming& naming, const ClientMetric& series) {
    switch (type) {
      case MetricType::Counter:
        exemplar_ = exemplar_of(naming.sample, series);
        sample(naming.sample, "", series, series.counter.value);
        exemplar_ = nullptr;
        return;
      case MetricType::Gauge:
        return sample(naming.sample, "", series, series.gauge.value);
      case MetricType::Untyped:
        return sample(naming.sample, "", series, series.untyped.value);
      case MetricType::Summary:
        return summary(naming.sample, series);
      case MetricType::Histogram:
        return histogram(naming.sample, series);
    }
  }

  const Exemplar* exemplar_of(std::string_view name, const ClientMetric& series) const {
    const auto has = [&](const auto& wanted) {
      return std::ranges::any_of(series.label, [&](const ClientMetric::Label& label) {
        return label.name == wanted.first && label.value == wanted.second;
      });
    };
    const auto found = std::ranges::find_if(exemplars_, [&](const Exemplar& exemplar) {
      return exemplar.family == name && std::ranges::all_of(exemplar.series, has);
    });
    return found == exemplars_.end() ? nullptr : &*found;
  }

  void histogram(std::string_view name, const ClientMetric& series) {
    const auto& histogram = series.histogram;
    bool has_infinity = false;
    for (const ClientMetric::Bucket& bucket : histogram.bucket) {
      has_infinity = has_infinity || bucket.upper_bound > kLargest;
      sample(name, "_bucket", series, static_cast<double>(bucket.cumulative_count), "le",
             bucket.upper_bound);
    }
    const auto count = static_cast<double>(histogram.sample_count);
    if (!has_infinity) sample(name, "_bucket", series, count, "le", kInfinity);
    sample(name, "_count", series, count);
    sample(name, "_sum", series, histogram.sample_sum);
  }

  void summary(std::string_view name, const ClientMetric& series) {
    for (const ClientMetric::Quantile& quantile : series.summary.quantile) {
      sample(name, "", series, quantile.value, "quantile", quantile.quantile);
    }
    sample(name, "_count", series, static_cast<double>(series.summary.sample_count));
    sample(name, "_sum", series, series.summary.sample_sum);
  }

  void sample(std::string_view name, std::string_view suffix, const ClientMetric& series,
              double value, std::string_view extra = {}, double extra_value = 0) {
    out_.append(name).append(suffix);
    char separator = '{';
    for (const ClientMetric::Label& label : series.label) {
      out_.append(1, separator).append(label.name).append("=\"");
      append_quoted(out_, label.value);
      out_ += '"';
      separator = ',';
    }
    if (!extra.empty()) {
      out_.append(1, separator).append(extra).append("=\"");
      append_canonical_number(out_, extra_value);
      out_ += '"';
      separator = ',';
    }
    out_.append(separator == ',' ? "} " : " ");
    append_number(out_, value);
    if (series.timestamp_ms != 0) timestamp(series.timestamp_ms);
    if (exemplar_ != nullptr) write_exemplar(*exemplar_);
    out_ += '\n';
  }

  void write_exemplar(const Exemplar& exemplar) {
    out_ += " # {";
    std::string_view separator;
    for (const auto& [label, text] : exemplar.labels) {
      out_.append(separator).append(label).append("=\"");
      append_quoted(out_, text);
      out_ += '"';
      separator = ",";
    }
    out_ += "} ";
    append_number(out_, exemplar.value);
    out_ += ' ';
    append_number(out_, exemplar.time);
  }

  void timestamp(std::int64_t milliseconds) {
    out_ += ' ';
    if (is_open_) {
      append_number(out_, static_cast<double>(milliseconds) / 1000);
    } else {
      out_ += std::to_string(milliseconds);
    }
  }

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr double kLargest = std::numeric_limits<double>::max();

  std::string& out_;
  bool is_open_;
  std::span<const Exemplar> exemplars_;
  const Exemplar* exemplar_ = nullptr;  ///< of the series that is being written
};

}  // namespace

std::string_view content_type(ExpositionFormat format) noexcept {
  return format == ExpositionFormat::openmetrics_1_0_0
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

void write_exposition(std::string& out, const std::vector<MetricFamily>& families,
                      ExpositionFormat format, std::span<const Exemplar> exemplars) {
  Writer writer(out, format, exemplars);
  for (const MetricFamily& family : families) writer.write(family);
  if (format == ExpositionFormat::openmetrics_1_0_0) out += "# EOF\n";
}

ExpositionFormat negotiate(std::string_view accept) noexcept try {
  double open = 0;
  double text = 0;
  double any = 0;
  for (const AcceptItem& item : parse_accept(accept)) {
    const auto is_version = [&](std::string_view version) {
      return item.version.empty() || item.version == version;
    };
    if (equals_ignoring_case(item.value, "application/openmetrics-text") && is_version("1.0.0")) {
      open = std::max(open, item.q);
    } else if (equals_ignoring_case(item.value, "text/plain") && is_version("0.0.4")) {
      text = std::max(text, item.q);
    } else if (equals_ignoring_case(item.value, "text/*") || item.value == "*/*") {
      any = std::max(any, item.q);
    }
  }
  if (text == 0) text = any;
  return open > 0 && open >= text ? ExpositionFormat::openmetrics_1_0_0
                                  : ExpositionFormat::text_0_0_4;
} catch (...) {
  return ExpositionFormat::text_0_0_4;
}

}  // namespace gradvane::exporters
