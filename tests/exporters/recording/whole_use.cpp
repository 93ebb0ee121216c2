#include "tests/exporters/recording/whole_use.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "exporters/api/api.hpp"
#include "exporters/api/history_api.hpp"
#include "exporters/board/status_board.hpp"
#include "exporters/exporter_set.hpp"
#include "exporters/history/run_history.hpp"
#include "exporters/metric_set.hpp"
#include "exporters/prometheus/prometheus_exporter.hpp"
#include "exporters/replay/diff.hpp"
#include "exporters/replay/replay.hpp"
#include "exporters/replay/story.hpp"

namespace gradvane::exporters::fakes {

using recording::DiffSide;
using recording::RecordedStep;
using recording::Story;

namespace {

void ask(const StatusBoard& board, const RunHistory& history) {
  for (const char* query : {"", "optimizer=0", "last=3", "sort=grad_norm&order=desc"}) {
    (void)status_json(board, query);
    (void)params_json(board, query);
    (void)steps_json(board, query);
    (void)syncs_json(board, query);
    (void)history_json(board, history, query);
    (void)heatmap_json(board, history, query);
    (void)param_history_json(board, history, query);
  }
}

}  // namespace

void use(const recording::Recording& file) {
  for (const RecordedStep& step : file.steps) {
    ASSERT_TRUE(step.model);
    (void)file.detail(step);
  }
  const Story story = recording::story_of(file);
  EXPECT_FALSE(recording::text_of(story).empty());
  EXPECT_FALSE(recording::to_json(story)
                   .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                   .empty());
  const DiffSide side{"a", &file, {}};
  (void)recording::text_of(recording::diff_of(side, side));
  (void)recording::to_json(file);

  const auto metrics = std::make_shared<MetricSet>(file.run.value_or(record::RunInfo{}));
  const auto board = std::make_shared<StatusBoard>(std::max<std::size_t>(file.steps.size(), 1));
  const auto history = std::make_shared<RunHistory>();
  ExporterSet all(metrics);
  all.add(std::make_shared<PrometheusExporter>(metrics));
  all.add(board);
  all.add(history);
  recording::replay(file, all);
  ask(*board, *history);
}

}  // namespace gradvane::exporters::fakes
