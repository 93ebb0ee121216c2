// The agent on a CUDA device: the same answers as on a CPU, without a host sync.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "tests/agent/on_cuda.hpp"
#include "tests/agent/training.hpp"
#include "tests/kernels/device/sync_counter.hpp"

namespace gradvane {
namespace {

using kernels::test::SyncCounter;
using test::immediate;
using test::poison;
using test::quiet;
using test::Training;

class AgentOnCuda : public test::OnCuda {};

TEST_F(AgentOnCuda, LeavesLossAndWeightsBitIdenticalOver200StepsWithDropout) {
  const auto run = [](bool watched) {
    Training training(7, at::kCUDA);
    Agent agent(quiet());
    if (watched) agent.attach(*training.model, *training.optimizer);
    std::vector<at::Tensor> losses;
    for (int step = 0; step < 200; ++step) {
      losses.push_back(training.backward());
      if (watched)
        agent.step(*training.optimizer, losses.back());
      else
        training.optimizer->step();
    }
    std::vector<float> values;
    for (const at::Tensor& loss : losses) values.push_back(loss.item<float>());
    return std::make_pair(values, training.weight_bytes());
  };
  const auto without = run(false);
  const auto with = run(true);
  EXPECT_EQ(with.first, without.first);
  EXPECT_EQ(with.second, without.second);
}

TEST_F(AgentOnCuda, TheNormAndTheLossAreTorchs) {
  Training training(7, at::kCUDA);
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  for (int step = 1; step <= 20; ++step) {
    const at::Tensor loss = training.backward();
    const double norm = training.gradient_norm();
    const auto result = agent.step(*training.optimizer, loss);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->step, step);
    EXPECT_NEAR(*result->grad_norm, norm, 1e-6 * norm);
    EXPECT_EQ(*result->loss, loss.item<float>());
  }
}

TEST_F(AgentOnCuda, LaggedResultsArriveByThemselves) {
  Training training(7, at::kCUDA);
  Agent agent(quiet());
  agent.attach(*training.model, *training.optimizer);
  double norm = 0;
  for (int step = 1; step <= 50; ++step) {
    const at::Tensor loss = training.backward();
    norm = training.gradient_norm();
    agent.step(*training.optimizer, loss);
  }
  ASSERT_TRUE(agent.flush());
  EXPECT_EQ(agent.status().steps, 50);
  EXPECT_NEAR(*agent.status().latest.grad_norm, norm, 1e-6 * norm);
}

TEST_F(AgentOnCuda, NamesTheFirstBadElementOfATransposedGradientToo) {
  Training training(7, at::kCUDA);
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  agent.step(*training.optimizer, training.backward());
  const at::Tensor loss = training.backward();
  at::Tensor& gradient = training.parameter("3.weight").mutable_grad();
  gradient = gradient.t().contiguous().t();
  {
    const torch::NoGradGuard off;
    gradient.index_put_({5, 7}, -std::numeric_limits<double>::infinity());
  }
  const auto result = agent.step(*training.optimizer, loss);
  ASSERT_TRUE(result && result->blame);
  EXPECT_EQ(result->blame->param, "3.weight");
  EXPECT_EQ(result->blame->element, 5 * 32 + 7);
  EXPECT_EQ(result->blame->kind, "neg_inf");
}

TEST_F(AgentOnCuda, ClipsLikeTorchWithoutLeavingTheDevice) {
  Training ours(7, at::kCUDA);
  Training theirs(7, at::kCUDA);
  Agent agent(immediate());
  agent.attach(*ours.model, *ours.optimizer);
  torch::manual_seed(1);
  const at::Tensor loss = ours.backward();
  torch::manual_seed(1);
  theirs.backward();
  const double expected = torch::nn::utils::clip_grad_norm_(theirs.model->parameters(), 0.01);
  const at::Tensor norm = agent.clip_grad_norm(0.01);
  EXPECT_TRUE(norm.is_cuda());
  EXPECT_NEAR(norm.item<double>(), expected, 1e-5 * expected);
  const auto a = ours.gradients();
  const auto b = theirs.gradients();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::allclose(a[i], b[i], 1e-4, 1e-9));
  const auto result = agent.step(*ours.optimizer, loss);
  ASSERT_TRUE(result);
  EXPECT_NEAR(*result->grad_norm, expected, 1e-5 * expected);
  EXPECT_NEAR(*result->clip_coefficient, 0.01 / expected, 1e-5);
  EXPECT_EQ(*result->loss, loss.item<float>()) << "it came after the gradients";
}

/// Host syncs of 50 steps, with an agent of these options or without.
int syncs_of(const Options* options) {
  Training training(7, at::kCUDA);
  Options chosen = options != nullptr ? *options : quiet();
  chosen.weight_every = 10;
  Agent agent(chosen);
  if (options != nullptr) agent.attach(*training.model, *training.optimizer);
  const auto step = [&] {
    const at::Tensor loss = training.backward();
    if (options != nullptr) {
      agent.clip_grad_norm(1.0);
      agent.step(*training.optimizer, loss);
    } else {
      training.optimizer->step();
    }
  };
  for (int i = 0; i < 15; ++i) step();  // set-up, and what torch does at first
  torch::cuda::synchronize();
  const SyncCounter counter;
  for (int i = 0; i < 50; ++i) step();
  const int syncs = counter.syncs();
  torch::cuda::synchronize();
  return syncs;
}

TEST_F(AgentOnCuda, AddsNoHostSyncLaggedAndOneAStepImmediateOrWithAPolicy) {
  const int without = syncs_of(nullptr);
  const Options lagged = quiet();
  EXPECT_EQ(syncs_of(&lagged), without);
  const Options immediately = immediate();
  EXPECT_EQ(syncs_of(&immediately), without + 50) << "also where weights are read";
  Options skip = quiet();
  skip.on_nonfinite = NonfinitePolicy::skip;
  EXPECT_EQ(syncs_of(&skip), without + 50);
}

/// The weights' bytes after ten steps; gradients of those in `bad` hold a NaN, and those in `left_out` are not taken.
std::vector<char> weights_after(const Options& options, const std::vector<int>& bad,
                                const std::vector<int>& left_out = {}) {
  Training training(7, at::kCUDA);
  Agent agent(options);
  agent.attach(*training.model, *training.optimizer);
  for (int step = 1; step <= 10; ++step) {
    const at::Tensor loss = training.backward();
    if (std::ranges::count(bad, step) > 0)
      poison(training.gradients().front(), 3, std::numeric_limits<double>::quiet_NaN());
    if (std::ranges::count(left_out, step) == 0) agent.step(*training.optimizer, loss);
  }
  return training.weight_bytes();
}

TEST_F(AgentOnCuda, ASkippedStepLeavesTheWeightsOfARunThatNeverTookIt) {
  Options skip = quiet();
  skip.on_nonfinite = NonfinitePolicy::skip;
  EXPECT_EQ(weights_after(skip, {3, 7}), weights_after(quiet(), {}, {3, 7}));
  EXPECT_NE(weights_after(quiet(), {3, 7}), weights_after(quiet(), {}, {3, 7})) << "the control";
}

TEST_F(AgentOnCuda, AGraphThatHoldsTheAgentKeepsCountingWhenItIsReplayed) {
  Training training(7, at::kCUDA);
  torch::optim::SGD optimizer(training.model->parameters(), 1e-3);
  Agent agent(quiet());
  agent.attach(*training.model, optimizer);
  const at::Tensor input = torch::randn({8, 16}, at::kCUDA);
  const auto step = [&] {
    optimizer.zero_grad(/*set_to_none=*/false);
    const at::Tensor loss = training.model->forward(input).square().mean();
    loss.backward();
    agent.step(optimizer, loss);
  };
  const auto stream = c10::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  for (int i = 0; i < 3; ++i) step();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  step();
  graph.capture_end();
  for (int i = 0; i < 10; ++i) graph.replay();
  torch::cuda::synchronize();
  step();
  ASSERT_TRUE(agent.flush());
  EXPECT_EQ(agent.status().steps, 3 + 10 + 1);
  EXPECT_EQ(agent.status().latest.step, 14);
}

}  // namespace
}  // namespace gradvane
