#include "exporters/step_log/step_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using fakes::FakeTraining;
using fakes::lines_of;
using fakes::Scratch;
using nlohmann::json;

constexpr double kInf = std::numeric_limits<double>::infinity();

class StepLogTest : public testing::Test {
 protected:
  json line_after(const std::function<void(record::StepRecord&)>& change = {}) {
    StepLog log({.path = scratch_.path() / "steps.jsonl"});
    EXPECT_EQ(log.start(fakes::fake_run(), model_), ExportResult::ok);
    auto [record, detail] = training_.next();
    if (change) change(record);
    EXPECT_EQ(log.export_step(record, detail, *model_), ExportResult::ok);
    return json::parse(lines_of(scratch_.path() / "steps.jsonl").back());
  }

  Scratch scratch_;
  std::shared_ptr<const record::ModelInfo> model_ = fakes::fake_model();
  FakeTraining training_{model_};
};

TEST_F(StepLogTest, WritesTheKeysOfTheContract) {
  const json line = line_after();
  EXPECT_EQ(line["step"], 1);
  EXPECT_EQ(line["run_step"], 1);
  EXPECT_EQ(line["time"], 1700000000.125);
  EXPECT_EQ(line["optimizer"], 0);
  EXPECT_EQ(line["loss"], *training_.current().record.loss);
  EXPECT_EQ(line["grad_norm"], *training_.current().record.grad_norm);
  EXPECT_EQ(line["grad_norm_at_step"], 1.0);
  EXPECT_LT(line["clip_coefficient"], 1.0);
  EXPECT_EQ(line["read_at"], "clip");
  EXPECT_EQ(line["lr"], 1e-3);
  EXPECT_EQ(line["nonfinite"], json::parse(R"({"loss": {"nan": 0, "pos_inf": 0, "neg_inf": 0},
                            "grad": {"nan": 0, "pos_inf": 0, "neg_inf": 0}})"));
  EXPECT_EQ(line["zero"], 162);
  EXPECT_EQ(line["numel"], 16832);
  EXPECT_EQ(line["params"], 9);
}

TEST_F(StepLogTest, NumbersReadBackAsTheSameDouble) {
  for (const double value : {0.1 + 0.2, 5e-324, 1e308, 1.0 / 3}) {
    EXPECT_EQ(line_after([&](auto& record) { record.loss = value; })["loss"].get<double>(), value);
  }
}

TEST_F(StepLogTest, ThereIsNoNormOfGradientsWithoutAFiniteElement) {
  const auto bad = [](std::int64_t left) {
    return [left](record::StepRecord& record) {
      record.grad_norm = record.grad_norm_at_step = record.grad_abs_max = 0;
      record.nonfinite[index_of(record::Site::grad)] = {record.grad_numel - left, 0, 0};
    };
  };
  const json none = line_after(bad(0));
  for (const char* key : {"grad_norm", "grad_norm_at_step", "grad_abs_max"})
    EXPECT_FALSE(none.contains(key)) << key;
  EXPECT_EQ(none["nonfinite"]["grad"]["nan"], 16832);
  EXPECT_EQ(line_after(bad(1))["grad_norm"], 0) << "of the one that is finite";
}

TEST_F(StepLogTest, WhereGradientsAreShardedTheNormIsOfAllProcesses) {
  const json line = line_after([](record::StepRecord& record) {
    record.grad_norm = 3;
    record.shard_grad_norm = record.grad_abs_max = 0;
    record.nonfinite[index_of(record::Site::grad)] = {record.grad_numel, 0, 0};
  });
  EXPECT_EQ(line["grad_norm"], 3);
  EXPECT_FALSE(line.contains("shard_grad_norm"));
  const json without = line_after([](record::StepRecord& record) {
    record.grad_norm = 3;
    record.norm_contribution = 0;
    record.shard_grad_norm.reset();
    record.nonfinite[index_of(record::Site::grad)] = {record.grad_numel, 0, 0};
  });
  EXPECT_EQ(without["grad_norm"], 3) << "others have finite elements";
}

TEST_F(StepLogTest, ALossThatIsNotFiniteIsAWord) {
  const auto loss = [&](double value) {
    return line_after([&](auto& record) { record.loss = value; })["loss"];
  };
  EXPECT_EQ(loss(std::nan("")), "nan");
  EXPECT_EQ(loss(kInf), "inf");
  EXPECT_EQ(loss(-kInf), "-inf");
}

TEST_F(StepLogTest, WhatWasNotMeasuredIsAbsent) {
  const json line = line_after([](record::StepRecord& record) {
    const auto step = record.step;
    record = {};
    record.step = record.run_step = step;
  });
  std::vector<std::string> keys;
  for (const auto& [key, value] : line.items()) keys.push_back(key);
  EXPECT_THAT(keys, testing::UnorderedElementsAre("step", "run_step", "time", "optimizer",
                                                  "micro_steps", "nonfinite", "agent_seconds"));
  EXPECT_EQ(line["nonfinite"], json::object());
}

TEST_F(StepLogTest, SeveralParameterGroupsMakeTheLearningRateAnArray) {
  const json line = line_after([](record::StepRecord& record) {
    record.lr[1] = 0.5;
    record.lr_count = 2;
  });
  EXPECT_EQ(line["lr"], json::parse("[0.001, 0.5]"));
}

TEST_F(StepLogTest, NamesTheFirstBadElement) {
  training_.next();
  training_.poison_gradient(3, record::NonfiniteKind::nan, 7);
  StepLog log({.path = scratch_.path() / "steps.jsonl"});
  ASSERT_EQ(log.start(fakes::fake_run(), model_), ExportResult::ok);
  const auto& [record, detail] = training_.current();
  ASSERT_EQ(log.export_step(record, detail, *model_), ExportResult::ok);
  const json line = json::parse(lines_of(scratch_.path() / "steps.jsonl").back());
  EXPECT_EQ(line["first_nonfinite"],
            json::parse(R"({"site": "grad", "kind": "nan", "param": "blocks.0.mlp.weight",
                            "element": 7})"));
  EXPECT_EQ(line["nonfinite"]["grad"]["nan"], 1);
  EXPECT_EQ(line["params"], 9);
}

TEST_F(StepLogTest, UserMetricsAreThereWhenTheyWereLoggedInThisStep) {
  EXPECT_TRUE(line_after()["user"].contains("accuracy"));
  EXPECT_FALSE(
      line_after([](auto& record) { record.user[0] = record::kNotLogged; }).contains("user"));
  EXPECT_EQ(line_after([](auto& record) { record.user[0] = std::nan(""); })["user"]["accuracy"],
            "nan");
}

TEST(RankPath, PutsTheRankBeforeTheSuffixWhereThereIsMoreThanOne) {
  EXPECT_EQ(rank_path("/a/steps.jsonl", 3, 1), "/a/steps.jsonl");
  EXPECT_EQ(rank_path("/a/steps.jsonl", 3, 8), "/a/steps.rank3.jsonl");
  EXPECT_EQ(rank_path("steps", 0, 2), "steps.rank0");
  EXPECT_EQ(rank_path("/a.b/steps", 0, 2), "/a.b/steps.rank0");
}

TEST_F(StepLogTest, EachRankHasItsFile) {
  auto run = fakes::fake_run();
  run.rank = 1;
  run.world_size = 2;
  StepLog log({.path = scratch_.path() / "steps.jsonl"});
  EXPECT_EQ(log.start(run, model_), ExportResult::ok);
  EXPECT_TRUE(std::filesystem::exists(scratch_.path() / "steps.rank1.jsonl"));
}

TEST_F(StepLogTest, AnUnwritableFileIsAFailureAndIsTriedAgain) {
  StepLog log({.path = scratch_.path() / "missing" / "steps.jsonl"});
  EXPECT_EQ(log.start(fakes::fake_run(), model_), ExportResult::failed);
  const auto& [record, detail] = training_.next();
  EXPECT_EQ(log.export_step(record, detail, *model_), ExportResult::failed);
  std::filesystem::create_directory(scratch_.path() / "missing");
  EXPECT_EQ(log.export_step(record, detail, *model_), ExportResult::ok);
  EXPECT_EQ(lines_of(scratch_.path() / "missing" / "steps.jsonl").size(), 1U);
}

TEST_F(StepLogTest, ADirectoryInItsPlaceIsAFailure) {
  StepLog log({.path = scratch_.path()});
  EXPECT_EQ(log.start(fakes::fake_run(), model_), ExportResult::failed);
}

TEST_F(StepLogTest, ASecondProcessHasAFileOfItsOwnAndSaysSo) {
  const auto path = scratch_.path() / "steps.jsonl";
  StepLog first({.path = path});
  StepLog second({.path = path});
  ASSERT_EQ(first.start(fakes::fake_run(), model_), ExportResult::ok);
  ASSERT_EQ(second.start(fakes::fake_run(), model_), ExportResult::ok);
  EXPECT_EQ(first.note(), "");
  const auto own = scratch_.path() / ("steps." + std::to_string(::getpid()) + ".jsonl");
  EXPECT_EQ(second.note(), "step log: another process writes " + path.string() +
                               ", this one writes " + own.string());
  const auto& [record, detail] = training_.next();
  ASSERT_EQ(first.export_step(record, detail, *model_), ExportResult::ok);
  ASSERT_EQ(second.export_step(record, detail, *model_), ExportResult::ok);
  EXPECT_EQ(lines_of(path).size(), 1U);
  EXPECT_EQ(lines_of(own).size(), 1U);
}

}  // namespace
}  // namespace gradvane::exporters
