// A naive check of every gradient for NaN makes the training wait hundreds of times a step. The agent, which
// says the same and more, makes it wait never, or once where results are wanted at once.
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/include/gradvane/agent.hpp"

namespace gradvane {
namespace {

using Json = nlohmann::json;

constexpr int kLayers = 50;  // a weight and a bias each
constexpr int kSteps = 30;
constexpr int kWarmUp = 10;
constexpr int kNaiveReads = 4 * 2 * kLayers;

/// As it is written in many training loops: four answers a parameter, each fetched by itself.
bool is_bad(const std::vector<at::Tensor>& parameters, double& largest) {
  bool bad = false;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    bad |= gradient.isnan().any().item<bool>();
    bad |= gradient.isinf().any().item<bool>();
    largest = std::max(largest, gradient.norm().item<double>());
    largest = std::max(largest, gradient.abs().max().item<double>());
  }
  return bad;
}

class SyncLedgerOfAnAgent : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) {
      const char* must_run = std::getenv("GRADVANE_GPU_TESTS_MUST_RUN");
      if (must_run != nullptr && std::string(must_run) == "1") FAIL() << "no CUDA device";
      GTEST_SKIP() << "no CUDA device";
    }
    folder_ = std::filesystem::path(testing::TempDir()) / ("syncs" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    // Not remove_all: torch exports one of its own, which crashes.
    for (const char* file : {"steps.jsonl", "syncs.json"}) (void)::unlink((folder_ / file).c_str());
    (void)::rmdir(folder_.c_str());
  }

  /// Trains with an agent, and with the check or without; fills steps_ and report_.
  void train(Mode mode, bool with_check) {
    torch::nn::Sequential model;
    for (int i = 0; i < kLayers; ++i) model->push_back(torch::nn::Linear(64, 64));
    model->to(at::kCUDA);
    torch::optim::SGD optimizer(model->parameters(), 1e-3);
    Options options;
    options.run = "test";
    options.port = -1;
    options.linger_seconds = 0;
    options.handle_sigterm = false;
    options.weight_every = 0;
    options.mode = mode;
    options.sync = Sync::require;
    options.sync_threshold_us = 15'000;
    options.step_log = folder_ / "steps.jsonl";
    options.sync_report = folder_ / "syncs.json";
    double largest = 0;
    {
      Agent agent(options);
      agent.attach(*model, optimizer);
      const at::Tensor input = at::randn({32, 64}, at::TensorOptions().device(at::kCUDA));
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        const at::Tensor loss = model->forward(input).square().mean();
        loss.backward();
        if (with_check) {
          ASSERT_FALSE(is_bad(model->parameters(), largest));
        }
        agent.step(optimizer, loss);
      }
      ASSERT_TRUE(agent.flush());
      agent.stop();
    }
    steps_.clear();
    std::ifstream log(options.step_log);
    for (std::string line; std::getline(log, line);) steps_.push_back(Json::parse(line));
    std::ifstream file(options.sync_report);
    report_ = Json::parse(file);
  }

  /// Every step after the first few has so many of them.
  void expect_each_step(const char* origin, int calls) {
    ASSERT_EQ(steps_.size(), static_cast<std::size_t>(kSteps));
    for (std::size_t i = kWarmUp; i < steps_.size(); ++i) {
      ASSERT_TRUE(steps_[i].contains("syncs")) << steps_[i];
      EXPECT_EQ(steps_[i]["syncs"][origin]["calls"], calls) << steps_[i]["syncs"];
    }
  }

  std::vector<Json> steps_;
  Json report_;

 private:
  std::filesystem::path folder_;
};

TEST_F(SyncLedgerOfAnAgent, TheNaiveCheckCostsFourHundredHostSyncsAStepAndTheLaggedAgentNone) {
  train(Mode::lagged, true);
  expect_each_step("training", kNaiveReads);
  expect_each_step("gradvane", 0);
  EXPECT_GE(report_["totals"]["training"]["d2h_read"]["calls"], kNaiveReads * kSteps);
  EXPECT_EQ(report_["steps_over"]["gradvane"], 0);
}

TEST_F(SyncLedgerOfAnAgent, WithoutTheCheckTheLaggedAgentLeavesNoHostSyncAtAll) {
  train(Mode::lagged, false);
  expect_each_step("training", 0);
  expect_each_step("gradvane", 0);
}

TEST_F(SyncLedgerOfAnAgent, TheImmediateAgentWaitsOnceAStepAndThatIsItsBudget) {
  train(Mode::immediate, false);
  expect_each_step("training", 0);
  expect_each_step("gradvane", 1);
  EXPECT_EQ(steps_.back()["own_sync_budget"], 1);
  EXPECT_EQ(report_["steps_over"]["gradvane"], 0);
}

}  // namespace
}  // namespace gradvane
