// What the page draws, as it is asked for over HTTP.
#include "exporters/api/history_api.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using fakes::FakeTraining;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class HistoryApiTest : public testing::Test {
 protected:
  HistoryApiTest() {
    EXPECT_EQ(board_.start(fakes::fake_run(), model_), ExportResult::ok);
    EXPECT_EQ(history_.start(fakes::fake_run(), model_), ExportResult::ok);
  }

  void export_current() {
    const auto& [record, detail] = training_.current();
    EXPECT_EQ(board_.export_step(record, detail, *model_), ExportResult::ok);
    EXPECT_EQ(history_.export_step(record, detail, *model_), ExportResult::ok);
  }
  void step(int count = 1) {
    for (int i = 0; i < count; ++i) {
      training_.next();
      export_current();
    }
  }
  json history(const std::string& query) {
    const HttpResponse answer = history_json(board_, history_, query);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::parse(answer.body);
  }
  json heatmap(const std::string& query) {
    const HttpResponse answer = heatmap_json(board_, history_, query);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::parse(answer.body);
  }

  std::shared_ptr<const record::ModelInfo> model_ = fakes::fake_model();
  StatusBoard board_{50};
  RunHistory history_;
  FakeTraining training_{model_};
};

TEST_F(HistoryApiTest, GivesTheWholeRunAndTheStepsThatAreKept) {
  step(120);
  const json run = history("");
  EXPECT_EQ(run["resolution"], "run");
  EXPECT_EQ(run["first"].size(), 120U);
  EXPECT_EQ(run["series"]["loss"]["max"].size(), 120U);
  const json steps = history("resolution=steps");
  EXPECT_EQ(steps["first"].size(), 50U);
  EXPECT_EQ(steps["first"].back(), 120);
  EXPECT_FALSE(steps["series"]["loss"].contains("max"));
  EXPECT_NEAR(steps["series"]["loss"]["last"].back().get<double>(),
              *training_.current().record.loss, 1e-6);
  EXPECT_EQ(history("resolution=steps&limit=3")["first"], json({118, 119, 120}));
}

TEST_F(HistoryApiTest, NextBringsWhatIsNewAndNothingTwice) {
  step(10);
  const json before = history("resolution=steps");
  step(3);
  const json after = history("resolution=steps&since=" + before["next"].dump());
  EXPECT_EQ(after["first"], json({11, 12, 13}));
  EXPECT_TRUE(history("resolution=steps&since=" + after["next"].dump())["first"].empty());
}

TEST_F(HistoryApiTest, TwoRecordsOfOneRunStepBothArrive) {
  step(2);
  training_.next();
  training_.current().record.skipped = record::SkipReason::loop;
  export_current();
  const json before = history("resolution=steps");
  training_.current().record.skipped = record::SkipReason::none;
  export_current();
  EXPECT_EQ(history("resolution=steps&since=" + before["next"].dump())["first"], json({3}));
}

TEST_F(HistoryApiTest, AnOptimizerThatStepsNowAndThenHasItsOwnCount) {
  step(2);
  EXPECT_FALSE(history("").contains("own_first"));  // the same as that of the run
  for (int i = 1; i <= 2000; ++i) {
    training_.next();
    training_.current().record.optimizer = 1;
    training_.current().record.step = i;
    training_.current().record.run_step = 5 * i;
    export_current();
  }
  const json steps = history("resolution=steps&optimizer=1&limit=3");
  EXPECT_EQ(steps["last"], json({9990, 9995, 10000}));
  EXPECT_EQ(steps["own_last"], json({1998, 1999, 2000}));
  const json run = history("optimizer=1");
  ASSERT_GT(run["steps_per_point"], 1);
  ASSERT_EQ(run["own_first"].size(), run["first"].size());
  for (std::size_t i = 1; i < run["own_first"].size(); ++i)
    EXPECT_EQ(run["own_first"][i].get<int>(), run["own_last"][i - 1].get<int>() + 1) << i;
  EXPECT_EQ(run["own_last"].back(), 2000);
}

TEST_F(HistoryApiTest, ANonfiniteStepIsCountedAndItsNumberIsNull) {
  step(3);
  training_.next();
  training_.poison_loss(std::numeric_limits<double>::quiet_NaN());
  export_current();
  const json steps = history("resolution=steps");
  EXPECT_EQ(steps["nonfinite"]["loss"], json({0, 0, 0, 1}));
  EXPECT_TRUE(steps["series"]["loss"]["last"][3].is_null());
}

TEST_F(HistoryApiTest, AHeatMapHasARowForEachNameAndSaysWhatWasBad) {
  step(4);
  training_.next();
  training_.poison_gradient(3, record::NonfiniteKind::nan);
  export_current();
  const json groups = heatmap("");
  EXPECT_EQ(groups["names"].size(), model_->groups.size());
  EXPECT_EQ(groups["values"].size(), model_->groups.size());
  EXPECT_EQ(groups["values"][0].size(), groups["first"].size());
  EXPECT_EQ(groups["nonfinite"], json::array({{model_->params[3].group, 4, 1}}));

  const json params = heatmap("rows=params&value=grad_zero_ratio&limit=2");
  EXPECT_EQ(params["names"], json({model_->params[0].name, model_->params[1].name}));
  EXPECT_EQ(params["total"], model_->params.size());
  EXPECT_EQ(params["value"], "grad_zero_ratio");
  EXPECT_LE(params["values"][0][0].get<double>(), 1.0);
}

TEST_F(HistoryApiTest, AParameterHasItsNumbersAndTheirHistory) {
  step(20);
  const std::string& name = model_->params[1].name;
  const json param = json::parse(param_history_json(board_, history_, "name=" + name).body);
  EXPECT_EQ(param["param"]["name"], name);
  EXPECT_EQ(param["series"]["grad_norm"].size(), 20U);
  EXPECT_TRUE(param["series"]["weight_norm"][0].is_null());  // weights are read every tenth step
  EXPECT_FALSE(param["series"]["weight_norm"][9].is_null());
  EXPECT_EQ(param["nonfinite"].size(), 20U);
}

TEST_F(HistoryApiTest, WhatIsNotThereOrNotAllowedIsSaid) {
  step();
  const auto missing = param_history_json(board_, history_, "name=nobody");
  EXPECT_EQ(missing.status, 404);
  EXPECT_THAT(missing.body, HasSubstr("nobody"));
  EXPECT_EQ(history_json(board_, history_, "resolution=days").status, 400);
  EXPECT_EQ(history_json(board_, history_, "since=-1").status, 400);
  EXPECT_EQ(heatmap_json(board_, history_, "value=loss").status, 400);
  EXPECT_EQ(heatmap_json(board_, history_, "group=x").status, 400);
  EXPECT_EQ(heatmap_json(board_, history_, "rows=params&limit=100000").status, 400);
}

TEST(HistoryApi, AnswersBeforeTheRunHasBegun) {
  const StatusBoard board;
  const RunHistory history;
  const json steps = json::parse(history_json(board, history, "").body);
  EXPECT_TRUE(steps["first"].empty());
  EXPECT_TRUE(steps["series"].empty());
  EXPECT_TRUE(json::parse(heatmap_json(board, history, "").body)["names"].empty());
}

TEST_F(HistoryApiTest, NumbersHaveSevenDigitsAndTimesMilliseconds) {
  training_.next();
  training_.current().record.loss = 1.0 / 3.0;
  training_.current().record.time = 1'700'000'000.1234;
  export_current();
  const auto answer = history_json(board_, history_, "resolution=steps").body;
  EXPECT_THAT(answer, HasSubstr("\"loss\":{\"last\":[0.3333333]}"));
  EXPECT_THAT(answer, HasSubstr("\"time\":[1700000000.123]"));
}

}  // namespace
}  // namespace gradvane::exporters
