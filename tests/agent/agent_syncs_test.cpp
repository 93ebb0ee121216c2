// Host syncs as an agent reports them: by step, place and budget. The CUDA that is called here is a fake one,
// which raises CUPTI's callbacks and waits for nothing.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "tests/agent/training.hpp"

namespace gradvane {
namespace {

using nlohmann::json;
using test::quiet;
using test::Training;
using testing::HasSubstr;
using testing::SizeIs;

template <typename Function>
Function in_fake(const char* name) {
  void* library = ::dlopen(GRADVANE_FAKE_CUDA, RTLD_NOW);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  return reinterpret_cast<Function>(::dlsym(library, name));
}

void item() {
  static const auto kCall = in_fake<void (*)(long)>("fake_item");
  kCall(0);
}
void synchronize(long microseconds) {
  static const auto kCall = in_fake<void (*)(long)>("fake_synchronize");
  kCall(microseconds);
}
bool is_subscribed() { return in_fake<int (*)()>("fake_is_subscribed")() == 1; }
void finalize() { in_fake<void (*)()>("fake_finalize")(); }
void take_by(const char* owner) { in_fake<void (*)(const char*)>("fake_take_by")(owner); }

class AgentSyncsTest : public testing::Test {
 public:
  ~AgentSyncsTest() override {
    take_by("");
    // Not remove_all: torch exports one of its own, which lacks what it needs.
    for (const std::string& file : {options_.step_log, options_.sync_report})
      (void)::unlink(file.c_str());
    (void)::rmdir(folder_.c_str());
  }

 protected:
  AgentSyncsTest() {
    folder_ =
        std::filesystem::temp_directory_path() / ("agent_syncs." + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    options_ = quiet();
    options_.sync = Sync::require;
    options_.sync_library = GRADVANE_FAKE_CUDA;
    options_.step_log = (folder_ / "steps.jsonl").string();
    options_.sync_report = (folder_ / "syncs.json").string();
  }
  [[nodiscard]] std::vector<json> steps() const {
    std::vector<json> steps;
    std::ifstream file(options_.step_log);
    for (std::string line; std::getline(file, line);) steps.push_back(json::parse(line));
    return steps;
  }
  [[nodiscard]] json report() const { return json::parse(std::ifstream(options_.sync_report)); }

  std::filesystem::path folder_;
  Options options_;
  Training training_;
};

TEST_F(AgentSyncsTest, ANaiveNanCheckIsFourSyncsAParameterAndTheAgentNone) {
  constexpr int kParameters = 100;
  Agent agent(options_);
  agent.attach(*training_.model, *training_.optimizer);
  for (int step = 0; step < 5; ++step) {
    const at::Tensor loss = training_.backward();
    {
      const Scope scope("naive NaN check");
      for (int p = 0; p < kParameters; ++p)
        for (int question = 0; question < 4; ++question) item();
    }
    agent.step(*training_.optimizer, loss);
  }
  agent.stop();
  const auto all = steps();
  ASSERT_THAT(all, SizeIs(5));
  EXPECT_FALSE(all[0].contains("syncs")) << "nobody saw where the first step began";
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_EQ(all[i]["syncs"]["training"]["calls"], 4 * kParameters);
    EXPECT_EQ(all[i]["syncs"]["training"]["kinds"], (json{{"d2h_read", 4 * kParameters}}));
    EXPECT_EQ(all[i]["syncs"]["gradvane"]["calls"], 0);
    EXPECT_EQ(all[i]["own_sync_budget"], 0);
  }
  const json syncs = report();
  EXPECT_EQ(syncs["source"], "cupti");
  ASSERT_THAT(syncs["sites"], SizeIs(1));
  EXPECT_EQ(syncs["sites"][0]["location"], "naive NaN check");
  EXPECT_EQ(syncs["sites"][0]["calls"], 5 * 4 * kParameters);
}

TEST_F(AgentSyncsTest, ASyncIsBookedOnThePhaseThatItIsIn) {
  Agent agent(options_);
  agent.attach(*training_.model, *training_.optimizer);
  for (int step = 0; step < 3; ++step) {
    {
      const auto phase = agent.phase(Phase::data);
      synchronize(0);
    }
    at::Tensor loss = training_.backward();
    item();
    agent.step(*training_.optimizer, [&] {
      synchronize(0);
      return loss;
    });
  }
  agent.stop();
  const json by_phase = report()["by_phase"];
  EXPECT_EQ(by_phase["data"]["calls"], 2) << "nobody saw the beginning of the first step";
  EXPECT_EQ(by_phase["optimizer"]["calls"], 2);
  EXPECT_EQ(by_phase["forward"]["calls"], 0);
  EXPECT_EQ(by_phase["other"]["calls"], 2) << "as the step's time is booked";
}

TEST_F(AgentSyncsTest, AnEvaluationHasItsTimeAPhaseInItHasItsOwnAndItsSyncsBelongToNoStep) {
  constexpr std::chrono::milliseconds kNap(20);
  Agent agent(options_);
  agent.attach(*training_.model, *training_.optimizer);
  for (int step = 0; step < 3; ++step) {
    {
      const auto evaluation = agent.phase(Phase::evaluation);
      synchronize(0);
      std::this_thread::sleep_for(kNap);
      const auto data = agent.phase(Phase::data);
      std::this_thread::sleep_for(2 * kNap);
    }
    agent.step(*training_.optimizer, training_.backward());
  }
  agent.stop();
  const auto all = steps();
  ASSERT_THAT(all, SizeIs(3));
  for (std::size_t i = 1; i < all.size(); ++i) {
    const json& phases = all[i]["phase_seconds"];
    EXPECT_GE(phases["evaluation"], 0.02);
    EXPECT_GE(phases["data"], 0.04);
    double sum = 0;
    for (const auto& [name, seconds] : phases.items()) sum += seconds.get<double>();
    EXPECT_LE(sum, 1.000001 * all[i]["step_seconds"].get<double>()) << "no time counts twice";
    EXPECT_EQ(all[i]["syncs"]["training"]["calls"], 0);
  }
  EXPECT_EQ(report()["parts"]["between_steps"]["calls"], 2);
}

TEST_F(AgentSyncsTest, ABudgetThatIsOverrunIsOneIncidentWithItsPlaces) {
  std::mutex mutex;
  std::vector<Incident> told;
  options_.sync_budget = 1;
  options_.sync_budget_after = 2;
  options_.on_incident = [&](const Incident& incident) {
    const std::lock_guard lock(mutex);
    told.push_back(incident);
  };
  Agent agent(options_);
  agent.attach(*training_.model, *training_.optimizer);
  for (int step = 0; step < 30; ++step) {
    const Scope scope("log");
    const int wanted = step >= 5 && step < 9 ? 3 : 1;
    for (int i = 0; i < wanted; ++i) item();
    agent.step(*training_.optimizer, training_.backward());
  }
  agent.stop();
  ASSERT_THAT(told, SizeIs(2)) << "opened, and closed when it was over";
  EXPECT_EQ(told[0].kind, "sync_budget");
  EXPECT_EQ(told[0].first_step, 6);
  EXPECT_THAT(told[0].evidence, HasSubstr("3 host syncs, budget 1: log (d2h_read, 3)"));
  EXPECT_EQ(told[1].steps, 4);
  const json syncs = report();
  EXPECT_EQ(syncs["budget"], 1);
  EXPECT_EQ(syncs["steps_over"]["training"], 4);
  EXPECT_EQ(syncs["most_in_step"]["calls"], 3);
}

TEST_F(AgentSyncsTest, TheSubscriptionIsGivenBackAtTheEnd) {
  {
    Agent agent(options_);
    EXPECT_TRUE(is_subscribed());
    agent.stop();
    EXPECT_FALSE(is_subscribed());
  }
  {
    const Agent agent(options_);
    EXPECT_TRUE(is_subscribed());
  }
  EXPECT_FALSE(is_subscribed()) << "also by the destructor";
}

TEST_F(AgentSyncsTest, ASecondRunInTheSameProcessStartsFromNothing) {
  for (const int wanted : {7, 2}) {
    Agent agent(options_);
    agent.attach(*training_.model, *training_.optimizer);
    const Scope scope("of two runs");
    for (int step = 0; step < wanted; ++step) {
      item();
      agent.step(*training_.optimizer, training_.backward());
    }
    agent.stop();
    const json syncs = report();
    EXPECT_EQ(syncs["totals"]["training"]["d2h_read"]["calls"], wanted);
    EXPECT_EQ(syncs["steps"], wanted);
    ASSERT_THAT(syncs["sites"], SizeIs(1));
    EXPECT_EQ(syncs["sites"][0]["calls"], wanted);
  }
}

TEST_F(AgentSyncsTest, TwoAgentsShareTheLedger) {
  Agent one(options_);
  options_.run = "other";
  Agent other(options_);
  one.stop();
  EXPECT_TRUE(is_subscribed());
  other.stop();
  EXPECT_FALSE(is_subscribed());
}

TEST_F(AgentSyncsTest, WhatIsRequiredAndCannotBeHadStopsTheSetUpWithAReason) {
  take_by("Nsight Systems");
  try {
    const Agent agent(options_);
    FAIL() << "it started";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("sync = require"));
    EXPECT_THAT(error.what(), HasSubstr("by Nsight Systems"));
    EXPECT_THAT(error.what(), HasSubstr("set sync = auto"));
  }
}

TEST_F(AgentSyncsTest, WhereItIsNotRequiredTrainingGoesOnAndNothingReadsAsZero) {
  for (const std::string library : {GRADVANE_FAKE_CUDA, "/nonexistent/libcupti.so"}) {
    options_.sync = Sync::automatic;  // and no driver is in this process
    options_.sync_library = library;
    Agent agent(options_);
    agent.attach(*training_.model, *training_.optimizer);
    for (int step = 0; step < 3; ++step) {
      item();
      agent.step(*training_.optimizer, training_.backward());
    }
    agent.stop();
    for (const json& step : steps()) EXPECT_FALSE(step.contains("syncs"));
    const json syncs = report();
    EXPECT_EQ(syncs["source"], "none");
    EXPECT_EQ(syncs["reason"], "no_cuda");
    EXPECT_FALSE(syncs.contains("totals"));
    EXPECT_FALSE(syncs.contains("sites"));
    (void)::unlink(options_.step_log.c_str());
  }
}

TEST_F(AgentSyncsTest, SwitchedOffNobodyListensAndNoReportIsWritten) {
  options_.sync = Sync::off;
  Agent agent(options_);
  agent.attach(*training_.model, *training_.optimizer);
  item();
  agent.step(*training_.optimizer, training_.backward());
  EXPECT_FALSE(is_subscribed());
  agent.stop();
  EXPECT_FALSE(std::filesystem::exists(options_.sync_report));
}

TEST_F(AgentSyncsTest, TheTrainingIsTheSameInEveryBit) {
  std::vector<std::vector<char>> weights;
  for (const bool with : {false, true}) {
    Training run;
    Options chosen = options_;
    chosen.sync = with ? Sync::require : Sync::off;
    Agent agent(chosen);
    agent.attach(*run.model, *run.optimizer);
    for (int step = 0; step < 20; ++step) {
      item();
      agent.step(*run.optimizer, run.backward());
    }
    agent.stop();
    weights.push_back(run.weight_bytes());
  }
  EXPECT_EQ(weights[0], weights[1]);
}

// The last one: a CUPTI that was ended is not begun anew in this process.
TEST_F(AgentSyncsTest, AForeignFinalizeLeavesAGapAndTheStepsAroundItUnknown) {
  // By a driver's call the ledger knows that CUPTI lives.
  ASSERT_EQ(::setenv("FAKE_CUDA", GRADVANE_FAKE_CUDA, 1), 0);
  ASSERT_NE(::dlopen(GRADVANE_FAKE_DRIVER, RTLD_NOW), nullptr) << ::dlerror();
  Agent agent(options_);
  agent.attach(*training_.model, *training_.optimizer);
  const auto step = [&] {
    item();
    agent.step(*training_.optimizer, training_.backward());
  };
  for (int i = 0; i < 3; ++i) step();
  agent.flush();  // what was counted before is judged
  finalize();
  for (int i = 0; i < 5; ++i) step();
  agent.stop();
  EXPECT_EQ(report()["gaps"], 1);
  EXPECT_EQ(report()["reason"], "lost");
  const auto all = steps();
  ASSERT_THAT(all, SizeIs(8));
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i].contains("syncs"), i == 1 || i == 2) << "step " << i + 1;
}

}  // namespace
}  // namespace gradvane
