// Policies in C++: a bad step is left out, and the loop is asked to stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "agent/include/gradvane/agent.hpp"
#include "tests/agent/training.hpp"

namespace gradvane {
namespace {

using test::immediate;
using test::kNan;
using test::poison;
using test::quiet;
using test::Training;
using testing::HasSubstr;

Options with(NonfinitePolicy policy, Options options = quiet()) {
  options.on_nonfinite = policy;
  return options;
}

/// Steps 1 to `steps`; the gradients of those in `bad` hold a NaN. Returns the weights' bytes.
std::vector<char> train(const Options& options, const std::vector<int>& bad, int steps = 10) {
  Training training;
  Agent agent(options);
  agent.attach(*training.model, *training.optimizer);
  for (int step = 1; step <= steps && !agent.should_stop(); ++step) {
    const at::Tensor loss = training.backward();
    if (std::find(bad.begin(), bad.end(), step) != bad.end())
      poison(training.gradients().front(), 3, kNan);
    agent.step(*training.optimizer, loss);
  }
  return training.weight_bytes();
}

/// The same training, without the agent and without the optimizer's steps in `left_out`.
std::vector<char> train_without(const std::vector<int>& left_out, int steps = 10) {
  Training training;
  for (int step = 1; step <= steps; ++step) {
    (void)training.backward();
    if (std::find(left_out.begin(), left_out.end(), step) == left_out.end())
      training.optimizer->step();
  }
  return training.weight_bytes();
}

TEST(AgentGovernor, ASkippedStepLeavesTheWeightsOfARunThatNeverTookIt) {
  EXPECT_EQ(train(with(NonfinitePolicy::skip), {3, 7}), train_without({3, 7}));
  EXPECT_NE(train(quiet(), {3, 7}), train_without({3, 7})) << "the control: it is taken";
}

TEST(AgentGovernor, AHealthyTrainingHasTheSameBitsUnderEveryPolicy) {
  const std::vector<char> plain = train_without({});
  EXPECT_EQ(train(with(NonfinitePolicy::skip), {}), plain);
  EXPECT_EQ(train(with(NonfinitePolicy::stop), {}), plain);
}

TEST(AgentGovernor, ABadLossWithFiniteGradientsIsSkipped) {
  Training training;
  Agent agent(with(NonfinitePolicy::skip, immediate()));
  agent.attach(*training.model, *training.optimizer);
  (void)agent.step(*training.optimizer, training.backward());
  const std::vector<char> before = training.weight_bytes();
  (void)training.backward();
  const auto result = agent.step(*training.optimizer, at::scalar_tensor(kNan));
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->skipped, "governor");
  EXPECT_EQ(training.weight_bytes(), before);
  EXPECT_EQ(agent.governor().skipped_steps, 1);
}

TEST(AgentGovernor, WhatWasPutBackBeforeTheUpdateIsNotSkipped) {
  Training training;
  Agent agent(with(NonfinitePolicy::stop));
  agent.attach(*training.model, *training.optimizer);
  const at::Tensor loss = training.backward();
  const at::Tensor gradient = training.gradients().front();
  const at::Tensor whole = gradient.clone();
  poison(gradient, 3, kNan);
  agent.after_backward(loss);
  gradient.copy_(whole);
  const std::vector<char> before = training.weight_bytes();
  agent.step(*training.optimizer);
  EXPECT_FALSE(agent.should_stop());
  EXPECT_NE(training.weight_bytes(), before);
}

TEST(AgentGovernor, AStopLeavesTheStepOutAndAsksTheLoopToEnd) {
  Training training;
  std::mutex mutex;
  std::vector<Incident> incidents;
  Options options = with(NonfinitePolicy::stop);
  options.on_incident = [&](const Incident& incident) {
    const std::lock_guard lock(mutex);
    incidents.push_back(incident);
  };
  Agent agent(options);
  agent.attach(*training.model, *training.optimizer);
  for (int i = 0; i < 3; ++i) agent.step(*training.optimizer, training.backward());
  EXPECT_FALSE(agent.should_stop());
  const std::vector<char> before = training.weight_bytes();
  const at::Tensor loss = training.backward();
  poison(training.gradients().front(), 0, kNan);
  agent.step(*training.optimizer, loss);
  EXPECT_TRUE(agent.should_stop());
  EXPECT_EQ(training.weight_bytes(), before);
  EXPECT_THAT(agent.governor().reason, HasSubstr("a gradient is not finite"));
  ASSERT_TRUE(agent.flush());
  EXPECT_TRUE(agent.governor().is_state_good);
  agent.stop();
  const Status status = agent.status();
  EXPECT_EQ(status.state, "failed") << "although the program says that it finished";
  EXPECT_THAT(status.reason, HasSubstr("stopped: step"));
  const std::lock_guard lock(mutex);
  ASSERT_FALSE(incidents.empty());
  ASSERT_TRUE(incidents.front().last_good_step.has_value());
  EXPECT_EQ(*incidents.front().last_good_step, incidents.front().first_step - 1);
  EXPECT_THAT(incidents.front().evidence, HasSubstr("Gradvane skipped the step"));
}

TEST(AgentGovernor, SkipsInARowStopTheLoop) {
  Training training;
  Options options = with(NonfinitePolicy::skip);
  options.skip_limit = 3;
  Agent agent(options);
  agent.attach(*training.model, *training.optimizer);
  int steps = 0;
  while (!agent.should_stop() && steps < 20) {
    const at::Tensor loss = training.backward();
    poison(training.gradients().front(), 0, kNan);
    agent.step(*training.optimizer, loss);
    ++steps;
  }
  EXPECT_EQ(steps, 3);
}

TEST(AgentGovernor, ALoopOfItsOwnIsAskedToStopAtTheEndOfTheStep) {
  Training training;
  Agent agent(with(NonfinitePolicy::stop));
  agent.attach(*training.model);
  agent.begin_step();
  const at::Tensor loss = training.backward();
  poison(training.gradients().front(), 0, kNan);
  agent.after_backward(loss);
  (void)agent.end_step();
  EXPECT_TRUE(agent.should_stop());
}

TEST(AgentGovernor, AStepWithAClosureIsTakenAndStopsTheLoopBehindIt) {
  Training training;
  torch::optim::SGD optimizer(training.model->parameters(), 0.1);
  Agent agent(with(NonfinitePolicy::stop));
  agent.attach(*training.model, optimizer);
  agent.step(optimizer, [&] {
    const at::Tensor loss = training.backward();
    poison(training.gradients().front(), 0, kNan);
    return loss;
  });
  EXPECT_TRUE(agent.should_stop());
  EXPECT_EQ(agent.governor().skipped_steps, 0) << "it was too late to skip it";
}

TEST(AgentGovernor, ParametersThatAreNotOnACpuAreRefused) {
  struct Elsewhere : torch::nn::Module {
    Elsewhere() { register_parameter("weight", at::empty({2, 2}, at::kMeta)); }
  } model;
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  Agent agent(with(NonfinitePolicy::skip));
  EXPECT_THROW(agent.attach(model, optimizer), std::invalid_argument);
  Agent watches(quiet());
  EXPECT_NO_THROW(watches.attach(model, optimizer));
}

TEST(AgentGovernor, ACheckpointIsNamedInALaterIncident) {
  Training training;
  std::mutex mutex;
  std::vector<Incident> incidents;
  Options options = with(NonfinitePolicy::skip);
  options.start_step = 100;
  options.on_incident = [&](const Incident& incident) {
    const std::lock_guard lock(mutex);
    incidents.push_back(incident);
  };
  Agent agent(options);
  agent.attach(*training.model, *training.optimizer);
  for (int step = 101; step <= 106; ++step) {
    const at::Tensor loss = training.backward();
    if (step == 105) poison(training.gradients().front(), 0, kNan);
    agent.step(*training.optimizer, loss);
    if (step == 103) const auto scope = agent.phase(Phase::checkpoint);
  }
  ASSERT_TRUE(agent.flush());
  const std::lock_guard lock(mutex);
  ASSERT_FALSE(incidents.empty());
  EXPECT_EQ(incidents.front().last_good_step, 104);
  EXPECT_EQ(incidents.front().last_good_checkpoint, 103);
}

TEST(AgentGovernor, RanksThatAreToAgreeNeedAWayToEachOther) {
  Options options = with(NonfinitePolicy::skip);
  options.ranks = RankAgreement::agree;
  options.world_size = 2;
  Training training;
  Agent agent(options);
  try {
    agent.attach(*training.model, *training.optimizer);
    FAIL() << "it was taken";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("call agree_over() before attach()"));
  }
  EXPECT_THROW(agent.agree_over(nullptr), std::invalid_argument);
  agent.agree_over([](const std::string& mine) { return std::vector{mine, mine}; });
  EXPECT_NO_THROW(agent.attach(*training.model, *training.optimizer));
}

}  // namespace
}  // namespace gradvane
