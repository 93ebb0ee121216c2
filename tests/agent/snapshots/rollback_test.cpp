// Snapshots and rollbacks that a C++ program asks for.
#include <ATen/native/Resize.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/agent/snapshots/loop.hpp"

namespace gradvane {
namespace {

using namespace test;
using testing::HasSubstr;

TEST(Rollback, OfLbfgsGoesBackToItsHistory) {
  Loop loop([](const Params& params) {
    return std::make_unique<torch::optim::LBFGS>(params,
                                                 torch::optim::LBFGSOptions(0.1).max_iter(4));
  });
  Agent agent(quiet());
  agent.attach(*loop.model, *loop.optimizer);
  const auto step = [&](int number) {
    agent.step(*loop.optimizer, [&] { return loop.backward(number); });
  };
  for (int i = 0; i < 3; ++i) step(i);
  ASSERT_TRUE(agent.snapshot());
  const auto before = loop.everything();
  for (int i = 3; i < 6; ++i) step(i);
  const auto after = loop.everything();
  (void)agent.rollback("a test");
  EXPECT_TRUE(same(loop.everything(), before));
  for (int i = 3; i < 6; ++i) step(i);
  EXPECT_TRUE(same(loop.everything(), after)) << "and goes on from there, bit for bit";
}

TEST(Rollback, IsInPlace) {
  Loop loop;
  Agent agent(quiet());
  agent.attach(*loop.model, *loop.optimizer);
  agent.step(*loop.optimizer, loop.backward(0));
  ASSERT_TRUE(agent.snapshot());
  const auto places = [&] {
    std::vector<const void*> all;
    for (const at::Tensor& buffer : loop.model->buffers()) all.push_back(buffer.const_data_ptr());
    for (const at::Tensor& param : loop.model->parameters()) {
      all.push_back(param.const_data_ptr());
      auto& state = *loop.optimizer->state().at(param.unsafeGetTensorImpl());
      all.push_back(static_cast<torch::optim::AdamWParamState&>(state).exp_avg().const_data_ptr());
    }
    return all;
  };
  const auto before = places();
  agent.step(*loop.optimizer, loop.backward(1));
  (void)agent.rollback("a test");
  EXPECT_EQ(places(), before);
}

TEST(Rollback, OfAStateFromBeforeTheFirstStepLeavesNoStateBehind) {
  Loop loop;
  Agent agent(quiet());
  agent.attach(*loop.model, *loop.optimizer);
  ASSERT_TRUE(agent.snapshot());
  const auto before = loop.weights();
  agent.step(*loop.optimizer, loop.backward(0));
  ASSERT_FALSE(loop.optimizer->state().empty());
  (void)agent.rollback("a test");
  EXPECT_TRUE(loop.optimizer->state().empty());
  EXPECT_TRUE(same(loop.weights(), before));
  for (const at::Tensor& param : loop.model->parameters()) EXPECT_FALSE(param.grad().defined());
}

TEST(Rollback, TheOptimizerIsResetOrKeptIfThatIsAskedFor) {
  for (const auto choice : {RollbackOptimizer::reset, RollbackOptimizer::keep}) {
    Loop loop;
    Agent agent(quiet());
    agent.attach(*loop.model, *loop.optimizer);
    agent.step(*loop.optimizer, loop.backward(0));
    ASSERT_TRUE(agent.snapshot());
    const auto weights = loop.weights();
    agent.step(*loop.optimizer, loop.backward(1));
    auto& options = loop.optimizer->param_groups()[0].options();
    options.set_lr(0.5);
    (void)agent.rollback("a test", {.optimizer = choice});
    EXPECT_TRUE(same(loop.weights(), weights));
    const bool keeps = choice == RollbackOptimizer::keep;
    EXPECT_EQ(loop.optimizer->state().empty(), !keeps);
    EXPECT_EQ(options.get_lr(), keeps ? 0.5 : 1e-2);
  }
}

TEST(Rollback, HyperparametersGoBackAndStayWhereTheProgramHasThem) {
  Loop loop;
  Agent agent(quiet());
  agent.attach(*loop.model, *loop.optimizer);
  agent.step(*loop.optimizer, loop.backward(0));
  ASSERT_TRUE(agent.snapshot());
  auto& options =
      static_cast<torch::optim::AdamWOptions&>(loop.optimizer->param_groups()[0].options());
  const torch::optim::AdamWOptions before = options;
  options.weight_decay(0.7).betas({0.1, 0.2}).lr(0.5);
  (void)agent.rollback("a test", {.lr_factor = 0.5});
  EXPECT_EQ(options.weight_decay(), before.weight_decay());
  EXPECT_EQ(options.betas(), before.betas());
  EXPECT_DOUBLE_EQ(options.lr(), 0.5 * before.lr());
  EXPECT_EQ(&options, &loop.optimizer->param_groups()[0].options());
}

TEST(Rollback, LearningRatesBackOffOnceMoreAtEachReturnToTheSameSnapshot) {
  Loop loop;
  Agent agent(quiet());
  agent.attach(*loop.model, *loop.optimizer);
  agent.step(*loop.optimizer, loop.backward(0));
  ASSERT_TRUE(agent.snapshot());
  EXPECT_EQ(agent.rollback("a test", {.lr_factor = 0.5}).lr_factor, 0.5);
  const Rollback second = agent.rollback("a test", {.lr_factor = 0.5});
  EXPECT_EQ(second.lr_factor, 0.25);
  EXPECT_FALSE(second.by_policy);
  EXPECT_DOUBLE_EQ(loop.optimizer->param_groups()[0].options().get_lr(), 0.25e-2);
  EXPECT_THROW((void)agent.rollback("a test", {.lr_factor = 0}), std::invalid_argument);
  EXPECT_THROW((void)agent.rollback("a test", {.lr_factor = kNan}), std::invalid_argument);
}

TEST(Rollback, WithoutASnapshotThrowsAndChangesNothing) {
  Loop loop;
  Agent agent(quiet());
  agent.attach(*loop.model, *loop.optimizer);
  agent.step(*loop.optimizer, loop.backward(0));
  const auto before = loop.everything();
  EXPECT_THROW((void)agent.rollback("a test"), std::runtime_error);
  EXPECT_TRUE(same(loop.everything(), before));
}

TEST(Rollback, ToAnotherModelIsRefusedAndChangesNoBit) {
  Loop loop;
  Agent agent(quiet());
  agent.attach(*loop.model, *loop.optimizer);
  agent.step(*loop.optimizer, loop.backward(0));
  ASSERT_TRUE(agent.snapshot());
  agent.step(*loop.optimizer, loop.backward(1));
  loop.model->push_back(torch::nn::Linear(1, 1));
  const auto before = loop.everything();
  try {
    (void)agent.rollback("a test");
    FAIL() << "it went back";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("it has 11 parameters and buffers and had 9"));
  }
  EXPECT_TRUE(same(loop.everything(), before));
}

TEST(Rollback, ToAnOptimizerWhoseGroupsWereMergedIsRefusedAndChangesNoBit) {
  Loop loop([](const Params& params) -> OptimizerPtr {
    const auto half = params.begin() + static_cast<std::ptrdiff_t>(params.size() / 2);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(Params(params.begin(), half));
    groups.emplace_back(Params(half, params.end()));
    return std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(1e-2));
  });
  Agent agent(quiet());
  agent.attach(*loop.model, *loop.optimizer);
  agent.step(*loop.optimizer, loop.backward(0));
  ASSERT_TRUE(agent.snapshot());
  agent.step(*loop.optimizer, loop.backward(1));
  const auto before = loop.everything();
  auto& groups = loop.optimizer->param_groups();
  for (const at::Tensor& param : groups[1].params()) groups[0].params().push_back(param);
  groups.pop_back();
  EXPECT_THROW((void)agent.rollback("a test"), std::runtime_error);
  EXPECT_TRUE(same(loop.everything(), before));
}

TEST(Rollback, AStateOfTheProgramsOwnComesBack) {
  Loop loop;
  Agent agent(quiet());
  agent.attach(*loop.model, *loop.optimizer);
  int seen = 5;
  agent.snapshot_state(
      "position", [&] { return std::vector<at::Tensor>{torch::tensor(seen)}; },
      [&](const std::vector<at::Tensor>& from) { seen = from.at(0).item<int>(); });
  ASSERT_TRUE(agent.snapshot());
  seen = 9;
  (void)agent.rollback("a test");
  EXPECT_EQ(seen, 5);
}

TEST(Rollback, AFunctionOfTheProgramsOwnThatThrowsHarmsNothing) {
  Loop loop;
  Agent agent(quiet());
  agent.attach(*loop.model, *loop.optimizer);
  bool saves = true;
  agent.snapshot_state(
      "mine",
      [&]() -> std::vector<at::Tensor> {
        if (!saves) throw std::runtime_error("no");
        return {};
      },
      [](const std::vector<at::Tensor>&) { throw std::runtime_error("no"); });
  agent.on_rollback([](const Rollback&) { throw std::runtime_error("no"); });
  ASSERT_TRUE(agent.snapshot());
  const auto before = loop.everything();
  agent.step(*loop.optimizer, loop.backward(0));
  EXPECT_NO_THROW((void)agent.rollback("a test"));
  EXPECT_TRUE(same(loop.everything(), before));
  saves = false;
  agent.step(*loop.optimizer, loop.backward(1));
  EXPECT_FALSE(agent.snapshot()) << "broken off between copy and commit";
  EXPECT_FALSE(same(loop.everything(), before));
  EXPECT_NO_THROW((void)agent.rollback("a test"));
  EXPECT_TRUE(same(loop.everything(), before)) << "the one before is still there, to the bit";
}

TEST(Snapshot, OfAStateThatIsNotFiniteIsRefusedAndTheOneBeforeIsRestored) {
  for (const double value : {kNan, kInf, -kInf}) {
    for (const std::string place : {"parameter", "buffer", "state"}) {
      Loop loop;
      Agent agent(quiet());
      agent.attach(*loop.model, *loop.optimizer);
      agent.step(*loop.optimizer, loop.backward(0));
      ASSERT_TRUE(agent.snapshot());
      const auto good = loop.everything();
      agent.step(*loop.optimizer, loop.backward(1));
      const torch::NoGradGuard no_grad;
      at::Tensor param = loop.model->parameters()[1];
      auto& state = *loop.optimizer->state().at(param.unsafeGetTensorImpl());
      at::Tensor target = place == "parameter" ? param
                          : place == "buffer"
                              ? loop.model->buffers()[1]
                              : static_cast<torch::optim::AdamWParamState&>(state).exp_avg_sq();
      target.flatten()[-1].fill_(value);
      for (int i = 0; i < 3; ++i) EXPECT_FALSE(agent.snapshot()) << place << ' ' << value;
      (void)agent.rollback("a test");
      EXPECT_TRUE(same(loop.everything(), good)) << place << ' ' << value;
    }
  }
}

TEST(Snapshot, AMaskOfInfinitiesIsPartOfAGoodState) {
  struct Masked : torch::nn::Module {
    Masked() {
      layer = register_module("layer", torch::nn::Linear(3, 1));
      mask = register_buffer("mask", torch::full({4, 4}, -kInf).triu(1));
      scale = register_buffer("scale", torch::ones({3}));
    }
    torch::nn::Linear layer = nullptr;
    at::Tensor mask, scale;
  } model;
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  Agent agent(quiet());
  agent.attach(model, optimizer);
  EXPECT_TRUE(agent.snapshot());
  EXPECT_TRUE(agent.snapshot());
  model.scale.fill_(kInf);
  EXPECT_FALSE(agent.snapshot()) << "it was finite at the first one";
}

TEST(Snapshot, OfAnOptimizerThatIsNoneOfTorchsIsRefused) {
  struct OwnState : torch::optim::OptimizerCloneableParamState<OwnState> {
    at::Tensor average;
  };
  struct Own : torch::optim::SGD {
    using SGD::SGD;
    at::Tensor step(LossClosure closure = nullptr) override {
      auto& slot = state()[parameters()[0].unsafeGetTensorImpl()];
      if (slot == nullptr) slot = std::make_unique<OwnState>();
      return SGD::step(closure);
    }
  };
  Loop loop([](const Params& params) { return std::make_unique<Own>(params, 1e-2); });
  Agent agent(quiet());
  agent.attach(*loop.model, *loop.optimizer);
  agent.step(*loop.optimizer, loop.backward(0));
  EXPECT_FALSE(agent.snapshot());
}

TEST(Snapshot, OfAStorageThatIsFreedIsRefusedAndNothingIsCopiedIntoOne) {
  for (const bool of_the_optimizer : {false, true}) {
    Loop loop;
    Agent agent(quiet());
    agent.attach(*loop.model, *loop.optimizer);
    agent.step(*loop.optimizer, loop.backward(0));
    ASSERT_TRUE(agent.snapshot());
    const auto weights = loop.weights();
    const at::Tensor param = loop.model->parameters()[0];
    auto& state = *loop.optimizer->state().at(param.unsafeGetTensorImpl());
    const at::Tensor freed =
        of_the_optimizer ? static_cast<torch::optim::AdamWParamState&>(state).exp_avg() : param;
    const std::size_t size = freed.storage().nbytes();
    at::native::resize_bytes_nocuda(freed.storage(), 0);
    EXPECT_FALSE(agent.snapshot());
    if (of_the_optimizer) {
      (void)agent.rollback("a test");
      EXPECT_TRUE(same(loop.weights(), weights));
    } else {
      EXPECT_THROW((void)agent.rollback("a test"), std::runtime_error);
    }
    at::native::resize_bytes_nocuda(freed.storage(), c10::SymInt(static_cast<std::int64_t>(size)));
    freed.detach().zero_();  // what the new memory holds may be a NaN, which is refused
    EXPECT_TRUE(agent.snapshot());
  }
}

TEST(Snapshot, ParametersThatAreNotOnACpuAreRefusedAtSetUp) {
  struct Elsewhere : torch::nn::Module {
    Elsewhere() { register_parameter("weight", at::empty({2, 2}, at::kMeta)); }
  } model;
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  Options options = quiet();
  options.snapshot_every = 10;
  Agent agent(options);
  EXPECT_THROW(agent.attach(model, optimizer), std::invalid_argument);
}

}  // namespace
}  // namespace gradvane
