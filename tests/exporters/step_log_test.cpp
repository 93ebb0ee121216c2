#include "exporters/step_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using fakes::FakeTraining;
using fakes::Scratch;
using nlohmann::json;
using testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

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
  EXPECT_FALSE(line_after([](auto& record) { record.user[0] = std::nan(""); }).contains("user"));
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

// ---- the file -------------------------------------------------------------------------------------

TEST(LineFile, AppendsToWhatIsThere) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  for (const auto* line : {"one\n", "two\n"}) {
    LineFile file(path, 0, 0);
    EXPECT_TRUE(file.append(line));
  }
  EXPECT_THAT(lines_of(path), ElementsAre("one", "two"));
}

TEST(LineFile, EndsALineThatSomebodyElseLeftUnfinished) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  std::ofstream(path) << "torn";
  LineFile file(path, 0, 0);
  EXPECT_TRUE(file.append("whole\n"));
  EXPECT_THAT(lines_of(path), ElementsAre("torn", "whole"));
}

TEST(LineFile, RotatesBeforeItGetsTooLongAndKeepsSoMany) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  LineFile file(path, 10, 2);
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(file.append("line" + std::to_string(i) + "\n"));
  EXPECT_EQ(text_of(path), "line8\n");
  EXPECT_EQ(text_of(path.string() + ".1"), "line7\n");
  EXPECT_EQ(text_of(path.string() + ".2"), "line6\n");
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".3"));
}

TEST(LineFile, KeepsNothingWhereNothingIsToBeKept) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  LineFile file(path, 10, 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(file.append("line" + std::to_string(i) + "\n"));
  EXPECT_EQ(text_of(path), "line2\n");
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".1"));
}

TEST(LineFile, ALineLongerThanTheLimitIsWrittenAllTheSame) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  LineFile file(path, 3, 1);
  EXPECT_TRUE(file.append("longer\n"));
  EXPECT_EQ(text_of(path), "longer\n");
}

TEST(LineFile, AFullDiskLeavesNoHalfLine) {
  const Scratch scratch;
  const auto path = scratch.path() / "log";
  // A limit on the size of files does what a disk does that is full: a part is written, then nothing.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limited{.rlim_cur = 20, .rlim_max = before.rlim_max};
  LineFile file(path, 0, 0);
  ASSERT_TRUE(file.append("0123456789\n"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limited), 0);
  EXPECT_FALSE(file.append("abcdefghijklmn\n"));
  EXPECT_TRUE(file.append("short\n"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(file.append("after\n"));
  EXPECT_EQ(text_of(path), "0123456789\nshort\nafter\n");
}

TEST(LineFile, ADeviceThatIsFullFailsWithoutHarm) {
  LineFile file("/dev/full", 10, 1);
  EXPECT_FALSE(file.append("a line\n"));
  EXPECT_FALSE(file.append("a line\n"));
}

}  // namespace
}  // namespace gradvane::exporters
