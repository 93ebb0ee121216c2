#include "agent/include/gradvane/agent.hpp"

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/agent/training.hpp"

namespace gradvane {
namespace {

using test::immediate;
using test::kInf;
using test::kNan;
using test::poison;
using test::quiet;
using test::Training;

TEST(Agent, LeavesLossAndWeightsBitIdenticalOver200StepsWithDropout) {
  const auto run = [](bool watched) {
    Training training;
    Agent agent(quiet());
    if (watched) agent.attach(*training.model, *training.optimizer);
    std::vector<float> losses;
    for (int step = 0; step < 200; ++step) {
      const at::Tensor loss = training.backward();
      losses.push_back(loss.item<float>());
      if (watched)
        agent.step(*training.optimizer, loss);
      else
        training.optimizer->step();
    }
    return std::make_pair(losses, training.weight_bytes());
  };
  const auto without = run(false);
  const auto with = run(true);
  EXPECT_EQ(with.first, without.first);
  EXPECT_EQ(with.second, without.second);
  EXPECT_LT(with.first.back(), with.first.front());  // it did train
}

TEST(Agent, ReturnsTheStepInImmediateModeAndNothingInLaggedMode) {
  Training training;
  Agent lagged(quiet());
  lagged.attach(*training.model, *training.optimizer);
  EXPECT_FALSE(lagged.step(*training.optimizer, training.backward()).has_value());
  lagged.stop();

  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  const at::Tensor loss = training.backward();
  const double norm = training.gradient_norm();
  const auto result = agent.step(*training.optimizer, loss);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->step, 2);  // AdamW's own state knows of the step before
  ASSERT_TRUE(result->loss.has_value());
  EXPECT_DOUBLE_EQ(*result->loss, loss.item<double>());
  ASSERT_TRUE(result->grad_norm.has_value());
  EXPECT_NEAR(*result->grad_norm, norm, 1e-6 * norm);
  EXPECT_FALSE(result->clip_coefficient.has_value());
  EXPECT_FALSE(result->blame.has_value());
}

TEST(Agent, NamesTheInjectedParameterElementAndKindInEveryTrial) {
  Training training;
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  torch::manual_seed(11);
  std::uint64_t state = 12345;
  const auto next = [&state](std::uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  const auto names = training.model->named_parameters().keys();
  const std::array kinds{std::pair("nan", kNan), std::pair("pos_inf", kInf),
                         std::pair("neg_inf", -kInf)};
  for (int trial = 0; trial < 100; ++trial) {
    const at::Tensor loss = training.backward();
    const std::string& name = names[next(names.size())];
    const at::Tensor gradient = training.parameter(name).grad();
    const auto element =
        static_cast<std::int64_t>(next(static_cast<std::uint64_t>(gradient.numel())));
    const auto [kind, value] = kinds[next(3)];
    poison(gradient, element, value);
    agent.after_backward(loss);
    poison(gradient, element, 0);  // so that the next trial starts clean
    const auto result = agent.step(*training.optimizer);
    ASSERT_TRUE(result->blame.has_value()) << trial;
    EXPECT_EQ(result->blame->site, "grad");
    EXPECT_EQ(result->blame->param, name);
    EXPECT_EQ(result->blame->element, element);
    EXPECT_EQ(result->blame->kind, kind);
  }
  agent.flush();
  EXPECT_EQ(agent.status().nonfinite_steps, 100);
}

TEST(Agent, ReportsANonFiniteLossApartFromFiniteGradients) {
  Training training;
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  training.backward();
  const auto result = agent.step(*training.optimizer, at::scalar_tensor(-kInf, at::kFloat));
  ASSERT_TRUE(result->loss.has_value());
  EXPECT_EQ(*result->loss, -kInf);
  EXPECT_EQ(result->blame->site, "loss");
  EXPECT_EQ(result->blame->kind, "neg_inf");
  EXPECT_EQ(result->grad_nonfinite.nan, 0);
  EXPECT_TRUE(result->grad_norm.has_value());
}

TEST(Agent, TakesTheMeanOfTheLossesOfMicroSteps) {
  Training training;
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  training.backward();
  agent.micro_step(at::scalar_tensor(1.0));
  agent.micro_step(at::scalar_tensor(2.0));
  const auto result = agent.step(*training.optimizer, at::scalar_tensor(6.0));
  EXPECT_DOUBLE_EQ(*result->loss, 3.0);
  training.backward();
  EXPECT_DOUBLE_EQ(*agent.step(*training.optimizer, at::scalar_tensor(5.0))->loss, 5.0);
}

TEST(Agent, RunsAClosureAndTakesItsLastLoss) {
  Training training;
  torch::optim::LBFGS lbfgs(training.model->parameters(), torch::optim::LBFGSOptions().max_iter(4));
  Agent agent(immediate());
  agent.attach(*training.model, lbfgs);
  double last = 0;
  int calls = 0;
  const auto result = agent.step(lbfgs, [&] {
    lbfgs.zero_grad();
    const at::Tensor loss = training.backward();
    last = loss.item<double>();
    ++calls;
    return loss;
  });
  EXPECT_GT(calls, 1);
  ASSERT_TRUE(result.has_value());
  EXPECT_DOUBLE_EQ(*result->loss, last);
  EXPECT_TRUE(result->grad_norm.has_value());
}

TEST(Agent, WatchesALoopWithoutAnOptimizer) {
  Training training;
  Agent agent(immediate());
  agent.attach(*training.model);
  for (int step = 1; step <= 3; ++step) {
    agent.begin_step();
    const at::Tensor loss = training.backward();
    const double norm = training.gradient_norm();
    agent.after_backward(loss);
    {
      const torch::NoGradGuard off;
      for (const at::Tensor& parameter : training.model->parameters())
        parameter.add_(parameter.grad(), -0.01);
    }
    const auto result = agent.end_step();
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->step, step);
    EXPECT_NEAR(*result->grad_norm, norm, 1e-6 * norm);
  }
}

TEST(Agent, KeepsTwoOptimizersApartAndCountsTheRunByTheFirst) {
  Training generator(1);
  Training critic(2);
  Agent agent(immediate());
  agent.attach(*generator.model, *generator.optimizer);
  agent.attach(*critic.model, *critic.optimizer);
  for (int step = 1; step <= 2; ++step) {
    for (int k = 0; k < 3; ++k) {
      const at::Tensor loss = critic.backward();
      const double norm = critic.gradient_norm();
      const auto result = agent.step(*critic.optimizer, loss);
      EXPECT_EQ(result->step, 3 * (step - 1) + k + 1);
      EXPECT_EQ(result->run_step, result->step);
      EXPECT_NEAR(*result->grad_norm, norm, 1e-6 * norm);
    }
    const auto result = agent.step(*generator.optimizer, generator.backward());
    EXPECT_EQ(result->step, step);
    EXPECT_EQ(result->run_step, 3 * step);
  }
}

TEST(Agent, ReadsAndClipsEachOfManyOptimizers) {
  std::vector<std::unique_ptr<Training>> trainings;
  Agent agent(immediate());
  for (std::size_t i = 0; i < 100; ++i) {  // plans are made for several at once
    trainings.push_back(std::make_unique<Training>(i));
    agent.attach(*trainings[i]->model, *trainings[i]->optimizer);
    (void)trainings[i]->backward();
  }
  double norm = 0;
  for (const auto& training : trainings) norm = std::hypot(norm, training->gradient_norm());
  EXPECT_NEAR(agent.clip_grad_norm(1.0).item<double>(), norm, 1e-6 * norm);
  for (const auto& training : trainings) {
    const double of_this = training->gradient_norm();
    const auto result = agent.step(*training->optimizer, at::zeros({}));
    ASSERT_TRUE(result && result->grad_norm);
    EXPECT_NEAR(*result->grad_norm, of_this, 1e-6 * of_this);
  }
}

TEST(Agent, FollowsAParameterThatIsReplaced) {
  Training training;
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  agent.step(*training.optimizer, training.backward());
  auto& first = training.model->at<torch::nn::LinearImpl>(0);
  const at::Tensor fresh = first.weight.detach().clone().set_requires_grad(true);
  for (auto& group : training.optimizer->param_groups())
    for (at::Tensor& parameter : group.params())
      if (parameter.is_same(first.weight)) parameter = fresh;
  first.named_parameters();
  first.weight.set_data(at::zeros({1}));  // the old one must not be read any more
  first.weight = fresh;
  first.register_parameter("weight2", fresh);
  const at::Tensor loss = training.backward();
  const auto result = agent.step(*training.optimizer, loss);
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->grad_norm.has_value());
}

TEST(Agent, LetsTheOptimizersExceptionThroughAndGoesOn) {
  Training training;
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  training.backward();
  EXPECT_THROW(agent.step(*training.optimizer,
                          [&]() -> at::Tensor { throw std::runtime_error("from the closure"); }),
               std::runtime_error);
  const auto result = agent.step(*training.optimizer, training.backward());
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->step, 1);
}

TEST(Agent, StepsAnOptimizerItDoesNotKnow) {
  Training training;
  torch::optim::SGD sgd(training.model->parameters(), 0.1);
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  const auto before = training.weight_bytes();
  training.backward();
  EXPECT_FALSE(agent.step(sgd).has_value());
  EXPECT_NE(training.weight_bytes(), before);
}

TEST(Agent, StillStepsAndClipsWhenSwitchedOff) {
  Training training;
  Options options = quiet();
  options.enabled = false;
  Agent agent(options);
  agent.attach(*training.model, *training.optimizer);
  const at::Tensor loss = training.backward();
  const double norm = training.gradient_norm();
  EXPECT_NEAR(agent.clip_grad_norm(0.5 * norm).item<double>(), norm, 1e-6 * norm);
  EXPECT_NEAR(training.gradient_norm(), 0.5 * norm, 1e-4 * norm);
  const auto before = training.weight_bytes();
  agent.step(*training.optimizer, loss);
  EXPECT_NE(training.weight_bytes(), before);
  EXPECT_EQ(agent.status().state, "off");
  EXPECT_EQ(agent.url(), "");
}

TEST(Agent, IsInertAfterStop) {
  Training training;
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  agent.step(*training.optimizer, training.backward());
  agent.stop();
  agent.stop();
  EXPECT_EQ(agent.status().state, "finished");
  EXPECT_EQ(agent.status().steps, 1);
  EXPECT_FALSE(agent.step(*training.optimizer, training.backward()).has_value());
  agent.log("after", 1);
  agent.after_backward();
  EXPECT_EQ(agent.status().steps, 1);
}

TEST(Agent, ExportsEveryStepThatWasHandedOver) {
  Training training;
  Agent agent(quiet());
  agent.attach(*training.model, *training.optimizer);
  for (int step = 0; step < 500; ++step) agent.step(*training.optimizer, training.backward());
  EXPECT_TRUE(agent.flush(std::chrono::seconds(30)));
  EXPECT_EQ(agent.status().steps, 500);
  EXPECT_EQ(agent.status().nonfinite_steps, 0);
}

TEST(Agent, RefusesAnOptimizerOfAnotherModuleAndOneThatIsAttachedTwice) {
  Training training;
  Training other;
  Agent agent(quiet());
  EXPECT_THROW(agent.attach(*training.model, *other.optimizer), std::invalid_argument);
  agent.attach(*training.model, *training.optimizer);
  EXPECT_THROW(agent.attach(*training.model, *training.optimizer), std::invalid_argument);
}

TEST(Agent, SurvivesNaNEverywhere) {
  Training training;
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  for (int step = 0; step < 60; ++step) {
    training.backward();
    for (const at::Tensor& gradient : training.gradients()) gradient.fill_(kNan);
    const auto result = agent.step(*training.optimizer, at::scalar_tensor(kNan));
    ASSERT_TRUE(result.has_value());
    EXPECT_FALSE(result->grad_norm) << "of the finite elements: there are none";
  }
  agent.flush();
  EXPECT_EQ(agent.status().nonfinite_steps, 60);
}

TEST(Agent, TwoInOneProcessDoNotMix) {
  Training one(1);
  Training two(2);
  Agent first(quiet());
  Agent second(quiet());
  first.attach(*one.model, *one.optimizer);
  second.attach(*two.model, *two.optimizer);
  for (int step = 0; step < 5; ++step) first.step(*one.optimizer, one.backward());
  for (int step = 0; step < 3; ++step) second.step(*two.optimizer, two.backward());
  first.flush();
  second.flush();
  EXPECT_EQ(first.status().steps, 5);
  EXPECT_EQ(second.status().steps, 3);
}

}  // namespace
}  // namespace gradvane
