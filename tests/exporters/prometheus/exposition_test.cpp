#include "exporters/prometheus/exposition.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <sstream>

#include "exporters/http/accept_header.hpp"
#include "exporters/text/number_text.hpp"
#include "exporters/text/text_escape.hpp"

namespace gradvane::exporters {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using testing::HasSubstr;
using testing::Not;

constexpr auto kText = ExpositionFormat::text_0_0_4;
constexpr auto kOpen = ExpositionFormat::openmetrics_1_0_0;
constexpr double kInf = std::numeric_limits<double>::infinity();

MetricFamily family(std::string name, MetricType type, double value = 1) {
  MetricFamily result;
  result.name = std::move(name);
  result.help = "help";
  result.type = type;
  result.metric.resize(1);
  result.metric[0].gauge.value = value;
  result.metric[0].counter.value = value;
  result.metric[0].untyped.value = value;
  return result;
}

std::string write(const std::vector<MetricFamily>& families, ExpositionFormat format) {
  std::string text;
  write_exposition(text, families, format);
  return text;
}

std::string number(double value) {
  std::string text;
  append_number(text, value);
  return text;
}

std::string canonical(double value) {
  std::string text;
  append_canonical_number(text, value);
  return text;
}

// ---- numbers --------------------------------------------------------------------------------------

TEST(NumberText, ReadsBackAsExactlyTheSameDouble) {
  std::vector<double> values{0.1 + 0.2,
                             1e308,
                             std::numeric_limits<double>::max(),
                             5e-324,
                             2.5e-310,
                             1.0 / 3,
                             -0.0,
                             0,
                             1e15,
                             1e15 - 1,
                             123456789012345678.0,
                             1e-4,
                             1e22};
  std::mt19937_64 random(7);
  while (values.size() < 20000) {
    const std::uint64_t bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (std::isfinite(value)) values.push_back(value);
  }
  for (const double value : values) {
    const std::string text = number(value);
    double back = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), back);
    ASSERT_EQ(result.ptr, text.data() + text.size()) << text;
    ASSERT_EQ(std::memcmp(&back, &value, sizeof value), 0) << text;
  }
}

TEST(NumberText, IsTheShortestAndWholeNumbersAreWrittenOut) {
  EXPECT_EQ(number(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(number(0.1), "0.1");
  EXPECT_EQ(number(100000), "100000");
  EXPECT_EQ(number(1700000000), "1700000000");
  EXPECT_EQ(number(1e300), "1e+300");
  EXPECT_EQ(number(0), "0");
}

TEST(NumberText, SpellsWhatIsNotFiniteAsPrometheusDoes) {
  EXPECT_EQ(number(std::nan("")), "NaN");
  EXPECT_EQ(number(-std::nan("")), "NaN");
  EXPECT_EQ(number(kInf), "+Inf");
  EXPECT_EQ(number(-kInf), "-Inf");
}

TEST(NumberText, WritesBucketBoundsInTheCanonicalForm) {
  const std::map<double, std::string> expected{
      {0, "0.0"},      {0.001, "0.001"},   {1, "1.0"},     {0.0001, "0.0001"},
      {1e-5, "1e-05"}, {100, "100.0"},     {2.5, "2.5"},   {999999, "999999.0"},
      {1e6, "1e+06"},  {2.5e7, "2.5e+07"}, {kInf, "+Inf"}, {-1, "-1.0"}};
  for (const auto& [value, text] : expected) EXPECT_EQ(canonical(value), text);
}

// ---- the two formats ------------------------------------------------------------------------------

TEST(Exposition, NothingAtAllIsAnEmptyTextAndAnEndMark) {
  EXPECT_EQ(write({}, kText), "");
  EXPECT_EQ(write({}, kOpen), "# EOF\n");
}

TEST(Exposition, LeavesOutFamiliesWithoutSeries) {
  MetricFamily empty = family("a", MetricType::Gauge);
  empty.metric.clear();
  EXPECT_EQ(write({empty}, kText), "");
}

TEST(Exposition, WritesACounterUnderBothNamesOfItsFamily) {
  const auto counter = family("jobs_seconds_total", MetricType::Counter, 3);
  EXPECT_EQ(write({counter}, kText),
            "# HELP jobs_seconds_total help\n# TYPE jobs_seconds_total counter\n"
            "jobs_seconds_total 3\n");
  EXPECT_EQ(write({counter}, kOpen),
            "# HELP jobs_seconds help\n# TYPE jobs_seconds counter\n# UNIT jobs_seconds seconds\n"
            "jobs_seconds_total 3\n# EOF\n");
}

TEST(Exposition, ACounterWithoutTheSuffixKeepsItsNameAndIsUnknownToOpenMetrics) {
  EXPECT_EQ(write({family("jobs", MetricType::Counter)}, kOpen),
            "# HELP jobs help\n# TYPE jobs unknown\njobs 1\n# EOF\n");
}

TEST(Exposition, AnInfoIsAGaugeInTextAndAnInfoInOpenMetrics) {
  const auto info = family("run_info", MetricType::Gauge, 1);
  EXPECT_THAT(write({info}, kText), HasSubstr("# TYPE run_info gauge\nrun_info 1\n"));
  EXPECT_THAT(write({info}, kOpen), HasSubstr("# TYPE run info\nrun_info 1\n"));
  EXPECT_THAT(write({family("run_info", MetricType::Gauge, 2)}, kOpen),
              HasSubstr("# TYPE run_info gauge\n"));
}

TEST(Exposition, HasAUnitLineOnlyWhereTheNameEndsInTheUnit) {
  EXPECT_THAT(write({family("memory_bytes", MetricType::Gauge)}, kOpen),
              HasSubstr("# UNIT memory_bytes bytes\n"));
  EXPECT_THAT(write({family("zero_ratio", MetricType::Gauge)}, kOpen),
              HasSubstr("# UNIT zero_ratio ratio\n"));
  EXPECT_THAT(write({family("loss", MetricType::Gauge)}, kOpen), Not(HasSubstr("# UNIT")));
  EXPECT_THAT(write({family("seconds", MetricType::Gauge)}, kOpen), Not(HasSubstr("# UNIT")));
  EXPECT_THAT(write({family("memory_bytes", MetricType::Gauge)}, kText), Not(HasSubstr("# UNIT")));
}

TEST(Exposition, WritesAHistogramWithItsInfiniteBucket) {
  MetricFamily histogram = family("t", MetricType::Histogram);
  histogram.metric[0].label = {{"a", "b"}};
  histogram.metric[0].histogram = {
      .sample_count = 3, .sample_sum = 2.5, .bucket = {{1, 0.5}, {3, kInf}}};
  const std::string lines =
      "t_bucket{a=\"b\",le=\"0.5\"} 1\nt_bucket{a=\"b\",le=\"+Inf\"} 3\nt_count{a=\"b\"} 3\n"
      "t_sum{a=\"b\"} 2.5\n";
  EXPECT_THAT(write({histogram}, kText), HasSubstr(lines));
  histogram.metric[0].histogram.bucket.pop_back();
  EXPECT_THAT(write({histogram}, kText), HasSubstr(lines));
}

TEST(Exposition, WritesASummary) {
  MetricFamily summary = family("t", MetricType::Summary);
  summary.metric[0].summary = {.sample_count = 4, .sample_sum = 8, .quantile = {{0.5, 2}, {1, 3}}};
  EXPECT_THAT(write({summary}, kText), HasSubstr("t{quantile=\"0.5\"} 2\nt{quantile=\"1.0\"} 3\n"
                                                 "t_count 4\nt_sum 8\n"));
}

TEST(Exposition, TimestampsAreMillisecondsInTextAndSecondsInOpenMetrics) {
  auto gauge = family("g", MetricType::Gauge);
  gauge.metric[0].timestamp_ms = 1700000000125;
  EXPECT_THAT(write({gauge}, kText), HasSubstr("g 1 1700000000125\n"));
  EXPECT_THAT(write({gauge}, kOpen), HasSubstr("g 1 1700000000.125\n"));
}

TEST(Exposition, EscapesHelpAndLabelValues) {
  auto gauge = family("g", MetricType::Gauge);
  gauge.help = "two\nlines, a \"quote\" and a \\";
  gauge.metric[0].label = {{"path", "C:\\x\n\"y\""}};
  EXPECT_THAT(write({gauge}, kText), HasSubstr("# HELP g two\\nlines, a \"quote\" and a \\\\\n"));
  EXPECT_THAT(write({gauge}, kOpen),
              HasSubstr("# HELP g two\\nlines, a \\\"quote\\\" and a \\\\\n"));
  EXPECT_THAT(write({gauge}, kText), HasSubstr("g{path=\"C:\\\\x\\n\\\"y\\\"\"} 1\n"));
}

TEST(Exposition, ReplacesBytesThatAreNotUtf8) {
  auto gauge = family("g", MetricType::Gauge);
  gauge.metric[0].label = {
      {"name", "gr\xC3\xBC\xC3\x9F \xFF \xE2\x82 \xED\xA0\x80 \xF0\x9F\x94\xA5 \xC0\x80"}};
  EXPECT_THAT(write({gauge}, kText),
              HasSubstr("name=\"gr\xC3\xBC\xC3\x9F \xEF\xBF\xBD \xEF\xBF\xBD\xEF\xBF\xBD "
                        "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD \xF0\x9F\x94\xA5 "
                        "\xEF\xBF\xBD\xEF\xBF\xBD\"} 1\n"));
}

TEST(Exposition, ContentTypesNameVersionAndCharacterSet) {
  EXPECT_EQ(content_type(kText), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(content_type(kOpen), "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

// ---- against prometheus-cpp's own serialiser ------------------------------------------------------

/// Sample name and labels, and the value, of each line; bounds and values as numbers, since
/// prometheus-cpp keeps 16 digits and writes 1 where we write 1.0.
std::map<std::string, double> samples_of(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const auto space = line.rfind(' ');
    std::string key = line.substr(0, space);
    if (const auto le = key.find("le=\""); le != std::string::npos) {
      const auto end = key.find('"', le + 4);
      key.replace(le + 4, end - le - 4, number(std::strtod(key.c_str() + le + 4, nullptr)));
    }
    EXPECT_TRUE(samples.emplace(key, std::strtod(line.c_str() + space, nullptr)).second) << key;
  }
  return samples;
}

TEST(Exposition, SaysTheSameAsPrometheusCppsOwnSerialiser) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> exponent(-300, 300);
  std::vector<MetricFamily> families;
  for (const MetricType type : {MetricType::Counter, MetricType::Gauge, MetricType::Histogram,
                                MetricType::Summary, MetricType::Untyped}) {
    for (int i = 0; i < 50; ++i) {
      const double value = i == 0 ? kInf : std::pow(10.0, exponent(random));
      MetricFamily one =
          family("m" + std::to_string(static_cast<int>(type)) + "_" + std::to_string(i) + "_total",
                 type, value);
      ClientMetric& series = one.metric[0];
      series.label = {{"a", "plain"}, {"b", "with \"quotes\" and \\"}};
      series.histogram = {.sample_count = 9, .sample_sum = value, .bucket = {{2, 0.5}, {9, kInf}}};
      series.summary = {.sample_count = 9, .sample_sum = value, .quantile = {{0.5, value}}};
      families.push_back(one);
    }
  }
  const auto ours = samples_of(write(families, kText));
  const auto theirs = samples_of(prometheus::TextSerializer().Serialize(families));
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [key, value] : theirs) {
    ASSERT_TRUE(ours.contains(key)) << key;
    if (std::isinf(value)) {
      EXPECT_EQ(ours.at(key), value) << key;
    } else {
      EXPECT_NEAR(ours.at(key), value, 1e-14 * std::abs(value)) << key;
    }
  }
}

TEST(Exposition, WritesTwoThousandSeriesInAFewMilliseconds) {
  MetricFamily many = family("gradvane_group_grad_norm", MetricType::Gauge, 0.1234567);
  many.metric[0].label = {{"run", "a-run"}, {"rank", "0"}, {"group", "blocks.12.attention"}};
  many.metric.resize(2000, many.metric[0]);
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = write({many}, kOpen);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(text.size(), 2000U * 60);
  // About 1 ms on an idle core; the bound leaves room for sanitizers and a busy machine.
  EXPECT_LT(took, std::chrono::milliseconds(250));
}

// ---- negotiation ----------------------------------------------------------------------------------

TEST(Negotiation, AnswersWhatPrometheusAsksFor) {
  // Prometheus 2.42, then 3.5, as they were seen to ask.
  EXPECT_EQ(negotiate("application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
                      "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
            kOpen);
  EXPECT_EQ(negotiate("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
                      "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;"
                      "escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"),
            kOpen);
}

TEST(Negotiation, HonoursQValues) {
  EXPECT_EQ(negotiate("application/openmetrics-text;q=0.2, text/plain;q=0.8"), kText);
  EXPECT_EQ(negotiate("application/openmetrics-text; q=0.8 , text/plain; q=0.2"), kOpen);
  EXPECT_EQ(negotiate("application/openmetrics-text;q=0, text/plain"), kText);
  EXPECT_EQ(negotiate("application/openmetrics-text;q=0"), kText);
  EXPECT_EQ(negotiate("text/plain, application/openmetrics-text"), kOpen);
  EXPECT_EQ(negotiate("application/openmetrics-text;q=0.5, */*;q=0.9"), kText);
}

TEST(Negotiation, AnswersTextToEverythingElse) {
  for (const auto* accept :
       {"", "*/*", "text/html,application/xhtml+xml,*/*;q=0.8", "application/json", ";;;,,,=",
        "application/openmetrics-text;version=0.0.1", "application/openmetrics-text;version=2.0.0",
        "application/openmetrics-text;q=nonsense", "application/openmetrics-text;q=7"}) {
    EXPECT_EQ(negotiate(accept), kText) << accept;
  }
}

TEST(Negotiation, IgnoresCaseAndQuotes) {
  EXPECT_EQ(negotiate("Application/OpenMetrics-Text; Version=\"1.0.0\"; Q=1"), kOpen);
}

TEST(Negotiation, UsesGzipOnlyWhereItIsAsked) {
  EXPECT_TRUE(accepts_gzip("gzip"));
  EXPECT_TRUE(accepts_gzip("deflate, GZIP;q=0.5"));
  EXPECT_TRUE(accepts_gzip("*"));
  EXPECT_FALSE(accepts_gzip(""));
  EXPECT_FALSE(accepts_gzip("identity"));
  EXPECT_FALSE(accepts_gzip("gzip;q=0"));
  EXPECT_FALSE(accepts_gzip("*, gzip;q=0"));
  EXPECT_FALSE(accepts_gzip("*;q=0"));
}

// ---- escaping for HTML ----------------------------------------------------------------------------

TEST(TextEscape, LeavesNoMarkupInHtml) {
  std::string html;
  append_html(html, "<script>\"a\" & 'b'</script>");
  EXPECT_EQ(html, "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;");
}

}  // namespace
}  // namespace gradvane::exporters
