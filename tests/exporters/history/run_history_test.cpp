#include "exporters/history/run_history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using fakes::FakeTraining;
using record::NonfiniteKind;
using testing::ElementsAre;

class RunHistoryTest : public testing::Test {
 protected:
  RunHistoryTest() { EXPECT_EQ(history_.start(fakes::fake_run(), model_), ExportResult::ok); }

  void export_current() {
    const auto& [record, detail] = training_.current();
    EXPECT_EQ(history_.export_step(record, detail, training_.model()), ExportResult::ok);
  }
  void step(int count = 1) {
    for (int i = 0; i < count; ++i) {
      training_.next();
      export_current();
    }
  }
  [[nodiscard]] RunHistory::Grid params(const RunHistory::GridChoice& choice) const {
    RunHistory::GridChoice asked = choice;
    asked.rows = RunHistory::Rows::params;
    return history_.grid(asked, 0);
  }

  std::shared_ptr<const record::ModelInfo> model_ = fakes::fake_model();
  RunHistory history_;
  FakeTraining training_{model_};
};

TEST_F(RunHistoryTest, HoldsTheNormOfEveryGroupAndParameter) {
  step(5);
  const auto groups = history_.grid({.limit = 100}, 0);
  ASSERT_EQ(groups.rows.size(), model_->groups.size());
  const auto& [record, detail] = training_.current();
  const std::size_t width = groups.columns.points.size();
  ASSERT_EQ(width, 5U);
  for (std::size_t row = 0; row < groups.rows.size(); ++row) {
    const GridCell& last = groups.columns.cells[row * width + width - 1];
    EXPECT_NEAR(magnitude_of(last.values[0]).value() / *detail.groups[row].grad_norm, 1, 0.002);
  }
  const auto all = params({.limit = 1000});
  ASSERT_EQ(all.rows.size(), model_->params.size());
  const GridCell& first = all.columns.cells[width - 1];
  EXPECT_NEAR(magnitude_of(first.values[0]).value() / detail.params[0].grad->norm, 1, 0.002);
}

TEST_F(RunHistoryTest, MarksTheParameterAndTheGroupThatWereNotFinite) {
  step(2);
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::nan);
  export_current();
  step(2);
  const auto bad_rows = [](const RunHistory::Grid& grid) {
    std::vector<std::size_t> rows;
    const std::size_t width = grid.columns.points.size();
    for (std::size_t i = 0; i < grid.columns.cells.size(); ++i)
      if (grid.columns.cells[i].bad_steps > 0) rows.push_back(i / width);
    return rows;
  };
  EXPECT_THAT(bad_rows(params({.limit = 1000})), ElementsAre(3));
  EXPECT_THAT(bad_rows(history_.grid({.limit = 100}, 0)),
              ElementsAre(static_cast<std::size_t>(model_->params[3].group)));
}

TEST_F(RunHistoryTest, ChoosesParametersByGroupNameAndSearch) {
  step();
  const std::string& group = model_->groups[2];
  for (const std::size_t row : params({.group = group, .limit = 1000}).rows)
    EXPECT_EQ(model_->groups[static_cast<std::size_t>(model_->params[row].group)], group);
  EXPECT_FALSE(params({.group = group, .limit = 1000}).rows.empty());
  EXPECT_TRUE(params({.group = "no such group", .limit = 1000}).rows.empty());
  const std::string& name = model_->params[2].name;
  EXPECT_THAT(params({.name = name, .limit = 1000}).rows, ElementsAre(2));
  const auto few = params({.search = "MLP", .limit = 1});
  EXPECT_EQ(few.rows.size(), 1U);
  EXPECT_GT(few.matched, 1U);
}

TEST_F(RunHistoryTest, EachOptimizerHasALineOfItsOwn) {
  training_.next();
  training_.current().record.optimizer = 1;
  training_.current().record.loss = 9.0;
  export_current();
  step(2);
  EXPECT_EQ(history_.series(0, 0).points.size(), 2U);
  ASSERT_EQ(history_.series(1, 0).points.size(), 1U);
  EXPECT_TRUE(history_.series(2, 0).points.empty());
}

TEST_F(RunHistoryTest, ARowKeepsItsPastWhenTheModelGrows) {
  step(3);
  auto grown = std::make_shared<record::ModelInfo>(*model_);
  grown->id = model_->id + 1;
  record::ParamInfo front = grown->params.front();
  front.name = "new.weight";
  grown->params.insert(grown->params.begin(), front);
  ASSERT_EQ(history_.set_model(grown), ExportResult::ok);
  const auto before = params({.name = model_->params[0].name, .limit = 1});
  EXPECT_NE(before.columns.cells.at(0).values[0], kNoMagnitude);
  const auto fresh = params({.name = "new.weight", .limit = 1});
  EXPECT_EQ(fresh.columns.cells.at(0).values[0], kNoMagnitude);
}

TEST_F(RunHistoryTest, AStepWithoutDetailHasNumbersAllTheSame) {
  training_.next();
  EXPECT_EQ(history_.export_step(training_.current().record, {}, *model_), ExportResult::ok);
  EXPECT_EQ(history_.series(0, 0).points.size(), 1U);
  EXPECT_TRUE(history_.grid({.limit = 100}, 0).columns.points.empty());
}

TEST(RunHistory, AnEmptyModelHasNoRows) {
  RunHistory history;
  const auto none = std::make_shared<const record::ModelInfo>();
  ASSERT_EQ(history.start(fakes::fake_run(), none), ExportResult::ok);
  record::StepRecord record;
  record.run_step = 1;
  EXPECT_EQ(history.export_step(record, {}, *none), ExportResult::ok);
  EXPECT_TRUE(history.grid({.limit = 10}, 0).rows.empty());
}

TEST_F(RunHistoryTest, IsReadWhileItGrows) {
  std::atomic<bool> is_over = false;
  std::jthread reader([&] {
    while (!is_over) {
      const auto grid = params({.limit = 1000});
      EXPECT_EQ(grid.columns.cells.size(), grid.rows.size() * grid.columns.points.size());
      (void)history_.series(0, 0);
    }
  });
  step(3000);
  is_over = true;
}

}  // namespace
}  // namespace gradvane::exporters
