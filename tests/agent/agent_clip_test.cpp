// Clipping by the agent: by the norm of the gradients as they are at that moment, as torch does it.
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "agent/include/gradvane/agent.hpp"
#include "tests/agent/training.hpp"

namespace gradvane {
namespace {

using test::immediate;
using test::kInf;
using test::kNan;
using test::poison;
using test::quiet;
using test::Training;

TEST(Agent, ClipsAsTorchDoes) {
  for (const double max_norm : {0.01, 1e6}) {
    Training ours(3);
    const at::Tensor loss = ours.backward();
    Training theirs(3);
    theirs.backward();
    const double norm = torch::nn::utils::clip_grad_norm_(theirs.model->parameters(), max_norm);

    Agent agent(immediate());
    agent.attach(*ours.model, *ours.optimizer);
    EXPECT_NEAR(agent.clip_grad_norm(max_norm).item<double>(), norm, 1e-6 * norm);
    const auto result = agent.step(*ours.optimizer, loss);
    theirs.optimizer->step();

    ASSERT_TRUE(result->clip_coefficient.has_value());
    EXPECT_NEAR(*result->clip_coefficient, std::min(1.0, max_norm / norm), 1e-5);
    EXPECT_NEAR(*result->grad_norm, norm, 1e-6 * norm);
    EXPECT_NEAR(*result->grad_norm_at_step, std::min(norm, max_norm), 1e-4 * norm);
    for (std::size_t i = 0; i < ours.gradients().size(); ++i)
      EXPECT_TRUE(at::allclose(ours.gradients()[i], theirs.gradients()[i], 1e-5, 1e-9));
  }
}

TEST(Agent, ClipsNonFiniteGradientsAsTorchDoes) {
  for (const double bad : {kNan, kInf, -kInf}) {
    Training ours(3);
    ours.backward();
    Training theirs(3);
    theirs.backward();
    poison(ours.parameter("0.weight").grad(), 5, bad);
    poison(theirs.parameter("0.weight").grad(), 5, bad);
    const double norm = torch::nn::utils::clip_grad_norm_(theirs.model->parameters(), 1.0);
    Agent agent(quiet());
    agent.attach(*ours.model, *ours.optimizer);
    const double got = agent.clip_grad_norm(1.0).item<double>();
    EXPECT_EQ(std::isnan(got), std::isnan(norm));
    EXPECT_EQ(std::isinf(got), std::isinf(norm));
    for (std::size_t i = 0; i < ours.gradients().size(); ++i)
      EXPECT_TRUE(at::allclose(ours.gradients()[i], theirs.gradients()[i], 0, 0, true));
  }
}

TEST(Agent, ClipsWithTheNormOfNowWhenGradientsWereWrittenAfterTheRead) {
  Training training;
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  const at::Tensor loss = training.backward();
  const double norm = training.gradient_norm();
  const at::Tensor gradient = training.parameter("3.weight").grad();
  const double kept = gradient.view(-1)[7].item<double>();
  poison(gradient, 7, kNan);
  agent.after_backward(loss);
  poison(gradient, 7, kept);
  EXPECT_NEAR(agent.clip_grad_norm(1e9).item<double>(), norm, 1e-6 * norm);
  const auto result = agent.step(*training.optimizer);
  EXPECT_EQ(result->grad_nonfinite.nan, 1);  // as it was read
  ASSERT_TRUE(result->blame.has_value());
  EXPECT_EQ(result->blame->param, "3.weight");
  EXPECT_EQ(result->blame->element, 7);
}

TEST(Agent, ClipsWithTheNormOfNowWhereNoVersionCounterTellsOfTheWrite) {
  Training training;
  Agent agent(immediate());
  agent.attach(*training.model, *training.optimizer);
  const at::Tensor loss = training.backward();
  agent.after_backward(loss);
  // As a collective, or a kernel of the program's own, writes.
  for (const at::Tensor& gradient : training.gradients())
    for (std::int64_t i = 0; i < gradient.numel(); ++i) gradient.data_ptr<float>()[i] *= 10;
  const double norm = training.gradient_norm();
  EXPECT_NEAR(agent.clip_grad_norm(0.5 * norm).item<double>(), norm, 1e-6 * norm);
  EXPECT_NEAR(training.gradient_norm(), 0.5 * norm, 1e-4 * norm);
}

}  // namespace
}  // namespace gradvane
