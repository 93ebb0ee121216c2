// What all ranks of a node say, as one exposition.
#include "exporters/prometheus/merge_expositions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/metric_family.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "exporters/exporter_set.hpp"
#include "exporters/metric_set.hpp"
#include "exporters/prometheus/exposition.hpp"
#include "exporters/prometheus/prometheus_exporter.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using testing::UnorderedElementsAreArray;

std::string merged(const std::vector<std::string>& parts) {
  const std::vector<std::string_view> views(parts.begin(), parts.end());
  return merge_expositions(views);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> series_of(const std::string& text) {
  std::vector<std::string> lines = lines_of(text);
  std::erase_if(lines, [](const std::string& line) { return line.starts_with('#'); });
  return lines;
}

/// After `steps` real steps, so that ranks differ in which families they have.
std::string exposition_of(std::int32_t rank, int steps, ExpositionFormat format) {
  record::RunInfo run = fakes::fake_run();
  run.rank = rank;
  const auto metrics = std::make_shared<MetricSet>(run);
  const auto model = fakes::fake_model();
  ExporterSet exporters(metrics);
  exporters.add(std::make_shared<PrometheusExporter>(metrics));
  EXPECT_EQ(exporters.start(run, model), ExportResult::ok);
  fakes::FakeTraining training(model);
  for (int i = 0; i < steps; ++i) {
    training.next();
    if (rank == 2) training.poison_gradient(1, record::NonfiniteKind::nan);
    const auto& [record, detail] = training.current();
    EXPECT_EQ(exporters.export_step(record, detail, training.model()), ExportResult::ok);
  }
  std::string text;
  write_exposition(text, metrics->collect(), format, metrics->exemplars());
  return text;
}

class MergeExpositionsTest : public testing::TestWithParam<ExpositionFormat> {};

TEST_P(MergeExpositionsTest, HasEverySeriesOfEveryRankAndEachFamilyOnce) {
  std::vector<std::string> parts;
  std::vector<std::string> expected;
  std::set<std::string> headers;
  for (const std::int32_t rank : {0, 1, 2}) {
    parts.push_back(exposition_of(rank, 3 * rank, GetParam()));
    std::ranges::copy(series_of(parts.back()), std::back_inserter(expected));
    for (const std::string& line : lines_of(parts.back()))
      if (line.starts_with("# HELP") || line.starts_with("# TYPE")) headers.insert(line);
  }
  const std::string text = merged(parts);
  EXPECT_THAT(series_of(text), UnorderedElementsAreArray(expected));
  std::multiset<std::string> found;
  for (const std::string& line : lines_of(text))
    if (line.starts_with("# HELP") || line.starts_with("# TYPE")) found.insert(line);
  EXPECT_THAT(found, UnorderedElementsAreArray(headers));
}

/// The formats demand it: between a family's header and the next one there are no series of others.
TEST_P(MergeExpositionsTest, KeepsTheSeriesOfAFamilyTogether) {
  const std::string text =
      merged({exposition_of(0, 0, GetParam()), exposition_of(1, 4, GetParam())});
  std::string family;
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("# TYPE ")) family = line.substr(7, line.find(' ', 7) - 7);
    if (line.starts_with('#')) continue;
    EXPECT_TRUE(line.starts_with(family)) << line << " stands in " << family;
  }
}

TEST_P(MergeExpositionsTest, LeavesOneExpositionAsItIs) {
  const std::string alone = exposition_of(1, 2, GetParam());
  EXPECT_EQ(merged({alone}), alone);
}

INSTANTIATE_TEST_SUITE_P(Formats, MergeExpositionsTest,
                         testing::Values(ExpositionFormat::text_0_0_4,
                                         ExpositionFormat::openmetrics_1_0_0),
                         [](const auto& format) {
                           return format.param == ExpositionFormat::text_0_0_4 ? "text"
                                                                               : "openmetrics";
                         });

TEST(MergeExpositions, EndsOpenMetricsOnce) {
  EXPECT_EQ(merged({"# TYPE a gauge\na{rank=\"0\"} 1\n# EOF\n",
                    "# TYPE a gauge\na{rank=\"1\"} 2\n# EOF\n"}),
            "# TYPE a gauge\na{rank=\"0\"} 1\na{rank=\"1\"} 2\n# EOF\n");
  EXPECT_EQ(merged({"# EOF\n"}), "# EOF\n");
  EXPECT_EQ(merged({}), "");
}

/// A family of the user's can be a gauge on one rank and a counter on another.
TEST(MergeExpositions, LeavesOutAFamilyThatHasAnotherTypeThanBefore) {
  EXPECT_EQ(merged({"# TYPE a gauge\na{rank=\"0\"} 1\n",
                    "# TYPE a counter\na{rank=\"1\"} 2\n# TYPE b gauge\nb{rank=\"1\"} 3\n"}),
            "# TYPE a gauge\na{rank=\"0\"} 1\n# TYPE b gauge\nb{rank=\"1\"} 3\n");
}

TEST(MergeExpositions, LeavesOutALineThatWasCutShort) {
  EXPECT_EQ(merged({"# TYPE a gauge\na{rank=\"0\"} 1",
                    "# TYPE a gauge\na{rank=\"1\"} 2\na{rank=\"1\",b=\"x"}),
            "# TYPE a gauge\na{rank=\"1\"} 2\n");
}

TEST(MergeExpositions, LeavesOutWhatNoFamilyAnnounces) {
  EXPECT_EQ(merged({"stray 1\n# a comment\nstray 2\n\n# TYPE a gauge\na 1\n"}),
            "# TYPE a gauge\na 1\n");
}

TEST(MergeExpositions, TakesAFamilyOfTheSameNameInAnyOrder) {
  EXPECT_EQ(merged({"# TYPE a gauge\na{rank=\"0\"} 1\n# TYPE b gauge\nb{rank=\"0\"} 1\n",
                    "# TYPE b gauge\nb{rank=\"1\"} 2\n# TYPE a gauge\na{rank=\"1\"} 2\n"}),
            "# TYPE a gauge\na{rank=\"0\"} 1\na{rank=\"1\"} 2\n"
            "# TYPE b gauge\nb{rank=\"0\"} 1\nb{rank=\"1\"} 2\n");
}

}  // namespace
}  // namespace gradvane::exporters
