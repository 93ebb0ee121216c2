// The policy `rollback` in C++.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/agent/snapshots/loop.hpp"

namespace gradvane {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

struct Kind {
  std::string name;
  std::function<OptimizerPtr(const Params&)> make;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class EveryOptimizer : public testing::TestWithParam<Kind> {};

TEST_P(EveryOptimizer, EndsWhereARunWithoutTheBadBatchesEnds) {
  const std::set<int> bad{4, 9};
  Loop without(GetParam().make);
  for (int i = 0; i < 14; ++i) {
    if (bad.contains(i)) continue;
    (void)without.backward(i);
    without.optimizer->step();
  }

  Loop rolled_back(GetParam().make);
  Agent agent(rolling_back());
  agent.attach(*rolled_back.model, *rolled_back.optimizer);
  std::vector<std::int64_t> returned_to;
  agent.on_rollback([&](const Rollback& done) { returned_to.push_back(done.to_step); });
  for (int i = 0; i < 14; ++i) {
    const at::Tensor loss = rolled_back.backward(i, bad.contains(i) ? kNan : 1);
    agent.step(*rolled_back.optimizer, loss);
  }
  EXPECT_TRUE(same(rolled_back.everything(), without.everything()));
  EXPECT_THAT(returned_to, ElementsAre(4, 9)) << "batches are numbered from 0, steps from 1";
  EXPECT_FALSE(agent.should_stop());

  Loop taken(GetParam().make);
  for (int i = 0; i < 14; ++i) {
    (void)taken.backward(i, bad.contains(i) ? kNan : 1);
    taken.optimizer->step();
  }
  EXPECT_FALSE(same(taken.weights(), without.weights())) << "the control: it spoils the run";
}

INSTANTIATE_TEST_SUITE_P(
    OfTorch, EveryOptimizer,
    testing::Values(Kind{"SGD",
                         [](const Params& params) {
                           return std::make_unique<torch::optim::SGD>(
                               params, torch::optim::SGDOptions(1e-2).momentum(0.9).nesterov(true));
                         }},
                    Kind{"Adam",
                         [](const Params& params) {
                           return std::make_unique<torch::optim::Adam>(
                               params, torch::optim::AdamOptions(1e-2).amsgrad(true));
                         }},
                    Kind{"AdamW", adamw},
                    Kind{"RMSprop",
                         [](const Params& params) {
                           return std::make_unique<torch::optim::RMSprop>(
                               params,
                               torch::optim::RMSpropOptions(1e-2).momentum(0.9).centered(true));
                         }},
                    Kind{"Adagrad",
                         [](const Params& params) {
                           return std::make_unique<torch::optim::Adagrad>(
                               params, torch::optim::AdagradOptions(1e-2));
                         }}),
    [](const auto& kind) { return kind.param.name; });

TEST(PolicyRollback, IsOneIncidentThatComesBehindItsCause) {
  Loop loop;
  std::mutex mutex;
  std::vector<Incident> opened;
  Options options = rolling_back(3);
  options.on_incident = [&](const Incident& incident) {
    const std::lock_guard lock(mutex);
    if (!incident.closed_at && (opened.empty() || opened.back().id != incident.id))
      opened.push_back(incident);
  };
  Agent agent(options);
  agent.attach(*loop.model, *loop.optimizer);
  for (int i = 1; i <= 9; ++i) agent.step(*loop.optimizer, loop.backward(i, i == 6 ? kNan : 1));
  ASSERT_TRUE(agent.flush());
  agent.stop();
  const std::lock_guard lock(mutex);
  ASSERT_THAT(opened, SizeIs(2));
  EXPECT_EQ(opened[0].kind, "nonfinite_loss");
  EXPECT_EQ(opened[1].kind, "rollback");
  EXPECT_EQ(opened[1].first_step, 6);
  EXPECT_THAT(opened[1].evidence, HasSubstr("went back to the state after step 4 (snapshot 2, "));
  EXPECT_THAT(opened[1].evidence, HasSubstr("step 6: the loss is not finite. Lost: 2 steps."));
}

TEST(PolicyRollback, MoreThanTheLimitStopTheRun) {
  Loop loop;
  Options options = rolling_back();
  options.rollback_limit = 2;
  Agent agent(options);
  agent.attach(*loop.model, *loop.optimizer);
  agent.step(*loop.optimizer, loop.backward(0));
  int rollbacks = 0;
  agent.on_rollback([&](const Rollback&) { ++rollbacks; });
  for (int i = 1; i < 9 && !agent.should_stop(); ++i)
    agent.step(*loop.optimizer, loop.backward(i, kNan));
  EXPECT_EQ(rollbacks, 2);
  EXPECT_TRUE(agent.should_stop());
  EXPECT_THAT(agent.governor().reason, HasSubstr("after 2 rollbacks within"));
}

TEST(PolicyRollback, BacksOffAndResetsTheOptimizerAsTheOptionsSay) {
  Loop loop;
  Options options = rolling_back();
  options.rollback_optimizer = RollbackOptimizer::reset;
  options.rollback_lr_factor = 0.5;
  Agent agent(options);
  agent.attach(*loop.model, *loop.optimizer);
  const double rate = loop.optimizer->param_groups()[0].options().get_lr();
  double factor = 0;
  agent.on_rollback([&](const Rollback& done) { factor = done.lr_factor; });
  for (int i = 0; i < 4; ++i) agent.step(*loop.optimizer, loop.backward(i));
  agent.step(*loop.optimizer, loop.backward(4, kNan));
  EXPECT_EQ(factor, 0.5);
  EXPECT_DOUBLE_EQ(loop.optimizer->param_groups()[0].options().get_lr(), 0.5 * rate);
  EXPECT_TRUE(loop.optimizer->state().empty());
}

TEST(PolicyRollback, ABadFirstStepStopsTheRunAndLeavesTheWeights) {
  Loop loop;
  Agent agent(rolling_back());
  agent.attach(*loop.model, *loop.optimizer);
  const std::vector<at::Tensor> before{loop.model->parameters()[0].detach().clone()};
  agent.step(*loop.optimizer, loop.backward(0, kNan));
  EXPECT_TRUE(agent.should_stop());
  EXPECT_THAT(agent.governor().reason, HasSubstr("there was no snapshot to go back to"));
  EXPECT_TRUE(loop.model->parameters()[0].equal(before[0]));
}

TEST(PolicyRollback, OfTwoOptimizersBothGoBackAtTheEndOfTheIteration) {
  Loop first;
  Loop second;
  Options options = rolling_back();
  options.rollback_limit = 1;
  Agent agent(options);
  agent.attach(*first.model, *first.optimizer);
  agent.attach(*second.model, *second.optimizer);
  const auto iteration = [&](int number, double factor) {
    agent.step(*first.optimizer, first.backward(number, factor));
    agent.step(*second.optimizer, second.backward(number, factor));
  };
  iteration(0, 1);
  iteration(1, 1);
  const auto of_first = first.everything();
  const auto of_second = second.everything();
  iteration(2, kNan);  // both are bad, and that is one rollback
  EXPECT_FALSE(agent.should_stop());
  EXPECT_TRUE(same(first.everything(), of_first));
  EXPECT_TRUE(same(second.everything(), of_second));
}

TEST(PolicyRollback, DoesNotWaitForAnOptimizerThatNeverSteps) {
  Loop trained;
  Loop idle;
  Agent agent(rolling_back());
  agent.attach(*trained.model, *trained.optimizer);
  agent.attach(*idle.model, *idle.optimizer);
  for (int i = 0; i < 40; ++i) agent.step(*trained.optimizer, trained.backward(i));
  const auto good = trained.everything();
  agent.step(*trained.optimizer, trained.backward(40, kNan));
  EXPECT_FALSE(agent.should_stop()) << agent.governor().reason;
  EXPECT_TRUE(same(trained.everything(), good));
}

TEST(PolicyRollback, WithoutASnapshotYetAnIdleOptimizerDoesNotKeepItFromStopping) {
  Loop trained;
  Loop idle;
  Agent agent(rolling_back());
  agent.attach(*trained.model, *trained.optimizer);
  agent.attach(*idle.model, *idle.optimizer);
  for (int i = 0; i < 5; ++i) agent.step(*trained.optimizer, trained.backward(i));
  for (int i = 5; i < 7; ++i) agent.step(*trained.optimizer, trained.backward(i, kNan));
  EXPECT_TRUE(agent.should_stop());
  EXPECT_THAT(agent.governor().reason, HasSubstr("there was no snapshot to go back to"));
}

TEST(PolicyRollback, OfALoopThatUpdatesItsWeightsItselfComesBehindTheUpdate) {
  Loop loop;
  Agent agent(rolling_back());
  agent.attach(*loop.model);
  const auto step = [&](int number, double factor) {
    agent.begin_step();
    agent.after_backward(loop.backward(number, factor));
    {
      const torch::NoGradGuard no_grad;
      for (const at::Tensor& param : loop.model->parameters()) param.sub_(param.grad() * 0.01);
    }
    agent.end_step();
  };
  for (int i = 0; i < 3; ++i) step(i, 1);
  const auto good = loop.weights();
  step(3, kNan);
  EXPECT_TRUE(same(loop.weights(), good));
}

TEST(PolicyRollback, AHealthyTrainingHasTheSameBits) {
  Loop plain;
  for (int i = 0; i < 8; ++i) {
    (void)plain.backward(i);
    plain.optimizer->step();
  }
  Loop watched;
  Agent agent(rolling_back());
  agent.attach(*watched.model, *watched.optimizer);
  for (int i = 0; i < 8; ++i) agent.step(*watched.optimizer, watched.backward(i));
  EXPECT_TRUE(same(watched.everything(), plain.everything()));
}

}  // namespace
}  // namespace gradvane
