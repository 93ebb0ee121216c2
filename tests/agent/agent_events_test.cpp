// What happens to gradients after they were read, and who is told.
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

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
using test::kInf;
using test::poison;
using test::quiet;
using test::Training;

TEST(AgentEvents, GradientsThatAreScaledAfterTheReadHaveTheirNormMeasuredAgain) {
  Training training;
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  const at::Tensor loss = training.backward();
  const double norm = training.gradient_norm();
  agent.after_backward(loss);
  for (const at::Tensor& gradient : training.gradients()) gradient.mul_(0.25);
  const auto result = agent.step(*training.optimizer);
  EXPECT_NEAR(*result->grad_norm, norm, 1e-6 * norm);
  EXPECT_NEAR(*result->grad_norm_at_step, norm / 4, 1e-4 * norm);
  EXPECT_FALSE(result->clip_coefficient.has_value());
}

TEST(AgentEvents, AGradientThatGoesBadBetweenReadAndStepIsBlamed) {
  Training training;
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  agent.after_backward(training.backward());
  poison(training.parameter("0.weight").grad(), 11, -kInf);
  const auto result = agent.step(*training.optimizer);
  ASSERT_TRUE(result->blame.has_value());
  EXPECT_EQ(result->blame->param, "0.weight");
  EXPECT_EQ(result->blame->element, 11);
  EXPECT_EQ(result->blame->kind, "neg_inf");
  EXPECT_EQ(result->grad_nonfinite.neg_inf, 1);
  agent.flush();
  EXPECT_EQ(agent.status().nonfinite_steps, 1);
}

TEST(AgentEvents, GradientsReadAndNeverSteppedWithAreToldAtTheEndIfTheyWereBad) {
  for (const bool bad : {false, true}) {
    Training training;
    Agent agent(quiet());
    agent.attach(*training.model, *training.optimizer);
    agent.step(*training.optimizer, training.backward());
    const at::Tensor loss = training.backward();
    if (bad) poison(training.parameter("3.weight").grad(), 0, kInf);
    agent.after_backward(loss);
    agent.stop();
    const Status status = agent.status();
    EXPECT_EQ(status.steps, 1) << "no step came of them";
    EXPECT_EQ(status.nonfinite_steps, bad ? 1 : 0);
    EXPECT_EQ(status.latest.skipped, bad ? "loop" : "none");
  }
}

TEST(AgentEvents, AnIncidentIsToldWhenItOpensAndWhenItClears) {
  std::mutex mutex;
  std::vector<Incident> told;
  Options options = quiet();
  options.on_incident = [&](const Incident& incident) {
    const std::lock_guard lock(mutex);
    told.push_back(incident);
    throw std::runtime_error("somebody else's trouble");
  };
  Training training;
  Agent agent(options);
  agent.attach(*training.model, *training.optimizer);
  for (int step = 1; step <= 60; ++step) {
    const at::Tensor loss = training.backward();
    if (step == 5) {
      poison(training.parameter("3.weight").grad(), 2, kInf);
      agent.after_backward(loss);
      poison(training.parameter("3.weight").grad(), 2, 0);
    }
    agent.step(*training.optimizer, loss);
  }
  agent.stop();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].kind, "nonfinite_grad");
  EXPECT_EQ(told[0].first_step, 5);
  EXPECT_FALSE(told[0].closed_at);
  ASSERT_TRUE(told[0].blame.has_value());
  EXPECT_EQ(told[0].blame->param, "3.weight");
  EXPECT_EQ(told[1].id, told[0].id);
  EXPECT_TRUE(told[1].closed_at);
}

TEST(AgentEvents, AUserMetricMayBeATensor) {
  Training training;
  Agent agent(quiet());
  agent.attach(*training.model, *training.optimizer);
  agent.log("accuracy", at::scalar_tensor(0.5));
  agent.step(*training.optimizer, training.backward());
  EXPECT_TRUE(agent.flush());
}

}  // namespace
}  // namespace gradvane
