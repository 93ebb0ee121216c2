#include "exporters/board/status_board.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "exporters/board/param_order.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using fakes::FakeTraining;
using record::NonfiniteKind;
using record::Site;
using testing::ElementsAre;

class StatusBoardTest : public testing::Test {
 protected:
  explicit StatusBoardTest(std::size_t history = 100) : board_(history) {
    EXPECT_EQ(board_.start(fakes::fake_run(), model_), ExportResult::ok);
  }

  void export_current() {
    const auto& [record, detail] = training_.current();
    EXPECT_EQ(board_.export_step(record, detail, training_.model()), ExportResult::ok);
  }
  void step(int count = 1) {
    for (int i = 0; i < count; ++i) {
      training_.next();
      export_current();
    }
  }

  std::shared_ptr<const record::ModelInfo> model_ = fakes::fake_model();
  StatusBoard board_;
  FakeTraining training_{model_};
};

TEST(StatusBoard, HasSomethingToReadBeforeItStarts) {
  const StatusBoard board;
  EXPECT_EQ(board.status()->run, nullptr);
  EXPECT_NE(board.status()->model, nullptr);
  EXPECT_TRUE(board.params()->rows.empty());
  EXPECT_TRUE(board.steps(0, 10).empty());
}

TEST_F(StatusBoardTest, ShowsTheLatestStep) {
  step(3);
  const auto status = board_.status();
  EXPECT_EQ(status->run->run, "fake-gpt");
  EXPECT_EQ(status->latest->run_step, 3);
  EXPECT_EQ(status->steps, 3);
  EXPECT_DOUBLE_EQ(status->agent_seconds / status->timed_seconds, 0.0004 / 0.125);
}

TEST_F(StatusBoardTest, ASnapshotStaysAsItWas) {
  step();
  const auto status = board_.status();
  const auto params = board_.params();
  const double norm = params->rows[0].grad->value.norm;
  step(20);
  EXPECT_EQ(status->latest->run_step, 1);
  EXPECT_EQ(params->run_step, 1);
  EXPECT_EQ(params->rows[0].grad->value.norm, norm);
}

TEST_F(StatusBoardTest, RemembersTheFirstBadElementOfAParameterAfterItRecovered) {
  step(4);
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::pos_inf, 17);
  export_current();
  step(4);
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::nan, 2);
  export_current();
  step(10);

  const auto params = board_.params();
  const ParamRow& row = params->rows[3];
  EXPECT_EQ(row.state, record::ParamState::finite);
  EXPECT_EQ(row.nonfinite_steps, 2);
  ASSERT_TRUE(row.first_bad);
  EXPECT_EQ(row.first_bad->run_step, 5);
  EXPECT_EQ(row.first_bad->site, Site::grad);
  EXPECT_EQ(row.first_bad->kind, NonfiniteKind::pos_inf);
  EXPECT_EQ(row.first_bad->element, 17);
  EXPECT_FALSE(params->rows[2].first_bad);
  EXPECT_EQ(board_.status()->first_bad->param, "blocks.0.mlp.weight");
}

TEST_F(StatusBoardTest, TheFirstBadElementStaysTheFirstWhenEverythingAfterItIsBadToo) {
  step(4);
  for (int i = 5; i < 10; ++i) {
    training_.next();
    for (std::int32_t param = i == 5 ? 3 : 0; param < (i == 5 ? 4 : 9); ++param) {
      training_.poison_gradient(param, NonfiniteKind::nan, param);
    }
    training_.poison_loss(std::nan(""));
    export_current();
  }
  const auto status = board_.status();
  EXPECT_EQ(status->first_bad->what.run_step, 5);
  EXPECT_EQ(board_.params()->rows[3].first_bad->run_step, 5);
  EXPECT_EQ(board_.params()->rows[0].first_bad->run_step, 6);
  EXPECT_EQ(status->loss->run_step, 4);
}

TEST_F(StatusBoardTest, AKindIsLeftOpenWhereSeveralCameAtOnceAndNobodySaysWhichWasFirst) {
  training_.next();
  training_.poison_gradient(2, NonfiniteKind::nan);
  training_.poison_gradient(3, NonfiniteKind::nan);
  training_.poison_gradient(3, NonfiniteKind::neg_inf);
  export_current();
  EXPECT_EQ(board_.params()->rows[2].first_bad->kind, NonfiniteKind::nan);
  EXPECT_EQ(board_.params()->rows[3].first_bad->kind, std::nullopt);
}

TEST_F(StatusBoardTest, AHandledOverflowIsNotTheFirstBadElement) {
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::pos_inf);
  training_.current().record.skipped = record::SkipReason::amp_overflow;
  export_current();
  EXPECT_FALSE(board_.status()->first_bad);
  EXPECT_EQ(board_.status()->skipped_steps, 1);
}

TEST_F(StatusBoardTest, KeepsTheLastWeightsWithTheStepTheyAreOf) {
  step(13);
  const auto params = board_.params();
  EXPECT_EQ(params->rows[0].weight->run_step, 10);
  EXPECT_EQ(params->rows[0].grad->run_step, 13);
  EXPECT_EQ(board_.status()->weight_norm->run_step, 10);
  for (std::size_t n = 0; n < record::kTensorNumbers.size(); ++n) {
    const record::TensorNumber& number = record::kTensorNumbers[n];
    const auto& kept = board_.status()->groups[0].of_weights[n];
    ASSERT_EQ(kept.has_value(), number.site == record::Site::weight) << number.key;
    if (kept) {
      EXPECT_EQ(kept->run_step, 10) << number.key;
    }
  }
}

TEST_F(StatusBoardTest, KeepsWhatOnlySomeStepsMeasure) {
  step();
  training_.next();
  training_.current().record.process_resident_bytes.reset();
  export_current();
  EXPECT_EQ(board_.status()->process_resident_bytes->run_step, 1);
  EXPECT_EQ(board_.status()->process_resident_bytes->value, 512 << 20);
}

TEST_F(StatusBoardTest, CarriesParametersOverByNameWhenTheModelChanges) {
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::nan);
  export_current();
  auto other = std::make_shared<record::ModelInfo>(*model_);
  other->id = 2;
  std::swap(other->params[3], other->params[4]);
  other->params[0].name = "renamed";
  EXPECT_EQ(board_.set_model(other), ExportResult::ok);
  const auto params = board_.params();
  EXPECT_FALSE(params->rows[3].first_bad);
  EXPECT_TRUE(params->rows[4].first_bad);
  EXPECT_FALSE(params->rows[0].grad);
  EXPECT_EQ(params->model, other);
}

TEST_F(StatusBoardTest, KeepsTheStepsThatFitAndGivesThemOldestFirst) {
  step(150);
  const auto all = board_.steps(0, 1000);
  ASSERT_EQ(all.size(), 100U);
  EXPECT_EQ(all.front().run_step, 51);
  EXPECT_EQ(all.back().run_step, 150);
  const auto some = board_.steps(60, 5);
  ASSERT_EQ(some.size(), 5U);
  EXPECT_EQ(some.front().run_step, 61);
  EXPECT_TRUE(board_.steps(150, 5).empty());
  const auto latest = board_.steps_of(0, 0, 3).steps;
  ASSERT_EQ(latest.size(), 3U);
  EXPECT_EQ(latest.front().run_step, 148);
}

TEST_F(StatusBoardTest, RecordsOfOneRunStepStayTogether) {
  for (int i = 0; i < 3; ++i) {
    training_.next();
    export_current();
    training_.current().record.optimizer = 1;
    export_current();
  }
  EXPECT_EQ(board_.steps(0, 1).size(), 2U);
  EXPECT_EQ(board_.steps(1, 3).size(), 4U);
}

TEST_F(StatusBoardTest, KeepsTheNumbersOfEachOptimizerApart) {
  training_.next();
  for (const int optimizer : {1, 0}) {  // in the same run step
    training_.current().record.optimizer = optimizer;
    training_.current().record.loss = 3 + optimizer;
    export_current();
  }
  const auto status = board_.status();
  EXPECT_EQ(status->lead.optimizer(), 1);
  EXPECT_EQ(status->optimizers.find(0)->loss->value, 3);
  EXPECT_EQ(status->optimizers.find(1)->loss->value, 4);
  EXPECT_EQ(status->optimizers.find(2), nullptr);
  EXPECT_EQ(status->latest->optimizer, 0);
}

TEST_F(StatusBoardTest, OfTrainingsOneAfterAnotherTheLatestLeadsAndTheLastFewAreKept) {
  for (int fold = 0; fold < 20; ++fold) {
    training_.next();
    training_.current().record.optimizer = fold;
    export_current();
    training_.next();
    training_.current().record.optimizer = fold;
    export_current();
    EXPECT_EQ(board_.status()->lead.optimizer(), fold);
  }
  EXPECT_EQ(board_.status()->optimizers.find(19)->latest->run_step, 40);
  EXPECT_NE(board_.status()->optimizers.find(12), nullptr);
  EXPECT_EQ(board_.status()->optimizers.find(11), nullptr);
}

TEST_F(StatusBoardTest, AStepThatReadsNothingOfAGroupLeavesItsNumbers) {
  training_.next();
  export_current();
  const auto before = board_.status()->groups[0].latest.grad_norm;
  ASSERT_TRUE(before);
  training_.next();
  training_.current().detail.groups[0] = {};
  export_current();
  EXPECT_EQ(board_.status()->groups[0].latest.grad_norm, before);
}

TEST_F(StatusBoardTest, KeepsTheNewestIncidentsAndCountsThemAll) {
  for (int id = 1; id <= 120; ++id) {
    EXPECT_EQ(board_.export_incident(fakes::fake_incident(id, id)), ExportResult::ok);
  }
  auto grown = fakes::fake_incident(120, 120);
  grown.steps = 7;
  EXPECT_EQ(board_.export_incident(grown), ExportResult::ok);
  EXPECT_EQ(board_.export_incident(fakes::fake_incident(3, 3)), ExportResult::ok);  // long gone
  const auto status = board_.status();
  ASSERT_EQ(status->incidents.size(), kMaxIncidents);
  EXPECT_EQ(status->incidents_total, 120);
  EXPECT_EQ(status->incidents[0].id, 120);
  EXPECT_EQ(status->incidents[0].steps, 7);
}

TEST_F(StatusBoardTest, ReadersOnOtherThreadsSeeWholeSteps) {
  std::atomic<bool> is_over = false;
  std::atomic<int> reads = 0;
  std::vector<std::jthread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!is_over) {
        const auto params = board_.params();
        for (const ParamRow& row : params->rows) {
          if (row.grad) {
            EXPECT_EQ(row.grad->run_step, params->run_step);
          }
        }
        const auto status = board_.status();
        if (status->latest) {
          EXPECT_EQ(status->latest->run_step, status->steps);
        }
        (void)board_.steps_of(0, 0, 10);
        ++reads;
      }
    });
  }
  step(2000);
  while (reads < 30) std::this_thread::yield();
  is_over = true;
}

// ---- the order of parameters ----------------------------------------------------------------------

ParamTable small_table() {
  auto model = std::make_shared<record::ModelInfo>();
  model->groups = {"z", "a"};
  ParamTable table;
  const auto add = [&](std::string name, std::int32_t group, std::optional<double> norm) {
    record::ParamInfo info;
    info.name = std::move(name);
    info.group = group;
    info.numel = 10;
    model->params.push_back(std::move(info));
    ParamRow row;
    if (norm) {
      row.state = record::ParamState::finite;
      row.grad = Dated<record::TensorNumbers>{{.numel = 10, .norm = *norm}, 1};
    }
    table.rows.push_back(row);
  };
  add("Bias", 0, 2);
  add("absent", 1, std::nullopt);
  add("weight", 1, 5);
  add("other", 0, 2);
  model->params[2].aliases = {"HEAD"};
  table.model = model;
  return table;
}

TEST(ParamOrder, SortsNumbersFromTheLargestAndWordsFromTheFirst) {
  const ParamTable table = small_table();
  EXPECT_THAT(choose_params(table, {}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(choose_params(table, {.key = "grad_norm"}), ElementsAre(2, 0, 3, 1));
  EXPECT_THAT(choose_params(table, {.key = "name"}), ElementsAre(0, 1, 3, 2));
  EXPECT_THAT(choose_params(table, {.key = "group"}), ElementsAre(1, 2, 0, 3));
}

TEST(ParamOrder, PutsRowsWithoutTheValueLastInBothDirections) {
  const ParamTable table = small_table();
  EXPECT_THAT(choose_params(table, {.key = "grad_norm", .descending = true}),
              ElementsAre(2, 0, 3, 1));
  EXPECT_THAT(choose_params(table, {.key = "grad_norm", .descending = false}),
              ElementsAre(0, 3, 2, 1));
}

TEST(ParamOrder, PutsWhatIsWrongFirst) {
  ParamTable table = small_table();
  EXPECT_THAT(choose_params(table, {.key = "worst"}), ElementsAre(1, 2, 0, 3));
  table.rows[3].state = record::ParamState::nonfinite;
  table.rows[0].first_bad = BadElement{};
  EXPECT_THAT(choose_params(table, {.key = "worst"}), ElementsAre(3, 0, 1, 2));
}

TEST(ParamOrder, SearchesNamesAndAliasesWhateverTheCase) {
  const ParamTable table = small_table();
  EXPECT_THAT(choose_params(table, {.search = "head"}), ElementsAre(2));
  EXPECT_THAT(choose_params(table, {.search = "bi"}), ElementsAre(0));
  EXPECT_THAT(choose_params(table, {.search = "nothing"}), ElementsAre());
}

TEST(ParamOrder, EveryKeyIsUnderstood) {
  const ParamTable table = small_table();
  for (const auto key : kParamKeys) {
    EXPECT_EQ(choose_params(table, {.key = key}).size(), 4U) << key;
  }
}

}  // namespace
}  // namespace gradvane::exporters
