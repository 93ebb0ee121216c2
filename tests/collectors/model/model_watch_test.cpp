#include "collectors/model/model_watch.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <array>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectors/model/libtorch_source.hpp"
#include "record/step_record.hpp"

namespace gradvane::collectors {
namespace {

using record::ParamInfo;
using testing::ElementsAre;
using testing::HasSubstr;
using torch::optim::SGD;

/// An embedding whose weight is also the output layer's, two hidden layers, a parameter of its own.
struct Net : torch::nn::Module {
  Net() {
    embedding = register_module("embedding", torch::nn::Embedding(6, 4));
    hidden = register_module("hidden", torch::nn::Linear(4, 4));
    head = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(4, 6).bias(false)));
    head->weight = head->register_parameter("tied", embedding->weight);
    scale = register_parameter("scale", at::ones({1}));
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear hidden{nullptr};
  torch::nn::Linear head{nullptr};
  at::Tensor scale;
};

std::vector<std::string> names_of(const ModelWatch& watch, int optimizer) {
  const auto plan = watch.plan(optimizer);
  std::vector<std::string> names;
  for (const std::int32_t param : plan->params)
    names.push_back(plan->model->params.at(static_cast<std::size_t>(param)).name);
  EXPECT_EQ(names.size(), watch.params(optimizer).size());
  return names;
}

const ParamInfo& info_of(const ModelWatch& watch, const std::string& name) {
  for (const ParamInfo& param : watch.plan(0)->model->params)
    if (param.name == name) return param;
  throw std::out_of_range(name);
}

template <typename Make>
std::string refusal_of(Make make) {
  try {
    make();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "(nothing was refused)";
}

TEST(ModelWatch, DescribesEveryParameterAsItsModuleNamesIt) {
  torch::nn::Linear linear(3, 2);
  linear->bias.set_requires_grad(false);
  SGD optimizer(linear->parameters(), 0.1);
  ModelWatch watch("auto", 50);
  EXPECT_EQ(watch.add(libtorch_source(*linear, &optimizer)), 0);
  EXPECT_EQ(watch.optimizers(), 1);
  EXPECT_EQ(watch.find(&optimizer), 0);
  EXPECT_THAT(names_of(watch, 0), ElementsAre("weight", "bias"));
  const auto plan = watch.plan(0);
  EXPECT_EQ(plan->optimizer, 0);
  EXPECT_THAT(plan->model->optimizers, ElementsAre("torch::optim::SGD"));
  EXPECT_THAT(plan->model->groups, ElementsAre("(root)"));
  const ParamInfo& weight = info_of(watch, "weight");
  EXPECT_THAT(weight.shape, ElementsAre(2, 3));
  EXPECT_EQ(weight.numel, 6);
  EXPECT_EQ(weight.dtype, "float32");
  EXPECT_EQ(weight.device, "cpu");
  EXPECT_TRUE(weight.requires_grad);
  EXPECT_FALSE(info_of(watch, "bias").requires_grad);
  EXPECT_TRUE(watch.params(0)[0].is_same(linear->weight));
}

TEST(ModelWatch, ATiedParameterIsListedOnceWithItsOtherNames) {
  Net net;
  SGD optimizer({net.embedding->weight, net.hidden->weight, net.hidden->bias, net.scale}, 0.1);
  ModelWatch watch("auto", 50);
  watch.add(libtorch_source(net, &optimizer));
  const ParamInfo& tied = info_of(watch, "embedding.weight");
  EXPECT_THAT(tied.aliases, ElementsAre("head.tied"));
  int listed = 0;
  for (const at::Tensor& param : watch.params(0)) listed += param.is_same(net.embedding->weight);
  EXPECT_EQ(listed, 1);
  std::int64_t numel = 0;
  for (const ParamInfo& param : watch.plan(0)->model->params) numel += param.numel;
  // head.weight itself is a parameter that nothing uses any more: 24 + 24 + 20 + 1.
  EXPECT_EQ(numel, 69);
}

TEST(ModelWatch, WhatIsFrozenAndInNoOptimizerIsInThePlanAndWhatTrainsIsOnlyListed) {
  Net net;
  net.hidden->weight.set_requires_grad(false);
  SGD optimizer({net.embedding->weight, net.scale}, 0.1);
  ModelWatch watch("depth:1", 50);
  watch.add(libtorch_source(net, &optimizer));
  const std::vector<std::string> names = names_of(watch, 0);
  EXPECT_THAT(names, testing::UnorderedElementsAre("embedding.weight", "hidden.weight", "scale"));
  EXPECT_FALSE(info_of(watch, "hidden.weight").requires_grad);
  EXPECT_TRUE(info_of(watch, "hidden.bias").requires_grad) << "it is listed";
  EXPECT_FALSE(watch.changed_anywhere());
  net.hidden->weight.set_requires_grad(true);
  EXPECT_TRUE(watch.changed_anywhere());
  watch.rebuild();
  EXPECT_THAT(names_of(watch, 0), testing::UnorderedElementsAre("embedding.weight", "scale"));
  EXPECT_FALSE(watch.changed_anywhere());
}

TEST(ModelWatch, AParameterThatIsNotInTheModuleIsNamedByItsPlaceInTheOptimizer) {
  torch::nn::Linear linear(2, 2);
  const at::Tensor temperature = at::ones({1}).set_requires_grad(true);
  std::vector<at::Tensor> params = linear->parameters();
  params.push_back(temperature);
  SGD optimizer(params, 0.1);
  ModelWatch watch("auto", 50);
  watch.add(libtorch_source(*linear, &optimizer));
  EXPECT_THAT(names_of(watch, 0), ElementsAre("weight", "bias", "optimizer0.group0.2"));
}

TEST(ModelWatch, AnOptimizerThatOwnsNothingOfTheModuleIsRefused) {
  torch::nn::Linear mine(2, 2);
  torch::nn::Linear other(2, 2);
  SGD optimizer(other->parameters(), 0.1);
  ModelWatch watch("auto", 50);
  EXPECT_THAT(
      refusal_of([&] { watch.add(libtorch_source(*mine, &optimizer)); }),
      HasSubstr("owns none of the module's parameters; attach the module it was made from"));
  EXPECT_EQ(watch.optimizers(), 0);
  EXPECT_EQ(watch.find(&optimizer), -1);
  EXPECT_EQ(watch.add(libtorch_source(*other, &optimizer)), 0);
  EXPECT_THAT(refusal_of([&] { watch.add(libtorch_source(*other, &optimizer)); }),
              HasSubstr("attached already"));
}

TEST(ModelWatch, ALoopWithoutAnOptimizerHasAPlanToo) {
  torch::nn::Linear linear(2, 2);
  ModelWatch watch("auto", 50);
  EXPECT_EQ(watch.add(libtorch_source(*linear, nullptr)), 0);
  EXPECT_THAT(names_of(watch, 0), ElementsAre("weight", "bias"));
  std::array<double, 4> rates{};
  EXPECT_EQ(watch.learning_rates(0, rates.data(), 4), 0);
  EXPECT_EQ(watch.steps_done(0), 0);
  EXPECT_FALSE(watch.changed(0));
}

TEST(ModelWatch, TwoOptimizersOverOneModuleShareItOut) {
  Net net;
  SGD body({net.embedding->weight, net.hidden->weight}, 0.1);
  torch::optim::Adam rest({net.scale, net.hidden->weight}, 0.1);
  ModelWatch watch("auto", 50);
  EXPECT_EQ(watch.add(libtorch_source(net, &body)), 0);
  EXPECT_EQ(watch.add(libtorch_source(net, &rest)), 1);
  EXPECT_THAT(names_of(watch, 0),
              testing::UnorderedElementsAre("embedding.weight", "hidden.weight"));
  EXPECT_THAT(names_of(watch, 1), testing::UnorderedElementsAre("scale", "hidden.weight"));
  EXPECT_EQ(watch.plan(0)->model, watch.plan(1)->model) << "one model, each parameter in it once";
  EXPECT_EQ(watch.plan(0)->model->params.size(), 5U);
  EXPECT_THAT(watch.plan(0)->model->optimizers,
              ElementsAre("torch::optim::SGD", "torch::optim::Adam"));
  EXPECT_EQ(watch.largest_plan(), 2U);
  EXPECT_NE(watch.plan(0)->id, watch.plan(1)->id);
}

TEST(ModelWatch, TwoModulesOfAnAdversarialPairAreToldApart) {
  torch::nn::Linear generator(3, 3);
  torch::nn::Linear critic(3, 1);
  SGD generator_optimizer(generator->parameters(), 0.1);
  SGD critic_optimizer(critic->parameters(), 0.1);
  ModelWatch watch("depth:1", 50);
  watch.add(libtorch_source(*generator, &generator_optimizer));
  watch.add(libtorch_source(*critic, &critic_optimizer));
  EXPECT_THAT(names_of(watch, 0), ElementsAre("module0.weight", "module0.bias"));
  EXPECT_THAT(names_of(watch, 1), ElementsAre("module1.weight", "module1.bias"));
  EXPECT_THAT(watch.plan(1)->model->groups, ElementsAre("module0", "module1"));
  EXPECT_EQ(watch.plan(1)->optimizer, 1);
}

TEST(ModelWatch, EveryRebuildMakesPlansAndModelsWithNewNumbers) {
  torch::nn::Linear linear(2, 2);
  SGD optimizer(linear->parameters(), 0.1);
  ModelWatch watch("auto", 50);
  watch.add(libtorch_source(*linear, &optimizer));
  std::set<std::uint64_t> plans;
  std::set<std::uint64_t> models;
  const auto old = watch.plan(0);
  for (int i = 0; i < 5; ++i) {
    plans.insert(watch.plan(0)->id);
    models.insert(watch.plan(0)->model->id);
    watch.rebuild();
  }
  EXPECT_EQ(plans.size(), 5U);
  EXPECT_EQ(models.size(), 5U);
  EXPECT_EQ(old->model->params.size(), 2U) << "who still holds an old plan may read it";
}

TEST(ModelWatch, AParameterReplacedInTheOptimizerIsNoticed) {
  torch::nn::Linear linear(2, 2);
  SGD optimizer(linear->parameters(), 0.1);
  ModelWatch watch("auto", 50);
  watch.add(libtorch_source(*linear, &optimizer));
  EXPECT_FALSE(watch.changed(0));
  EXPECT_FALSE(watch.changed_anywhere());
  const at::Tensor fresh = at::randn({2, 2}).set_requires_grad(true);
  optimizer.param_groups()[0].params()[0] = fresh;
  EXPECT_TRUE(watch.changed(0));
  EXPECT_TRUE(watch.changed_anywhere());
  watch.rebuild();
  EXPECT_FALSE(watch.changed(0));
  EXPECT_THAT(names_of(watch, 0), testing::Contains("optimizer0.group0.0"));
}

TEST(ModelWatch, AParameterReplacedInTheModuleIsNoticedByTheThoroughLook) {
  torch::nn::Linear linear(2, 2);
  SGD optimizer(linear->parameters(), 0.1);
  ModelWatch watch("auto", 50);
  watch.add(libtorch_source(*linear, &optimizer));
  linear->named_parameters();  // a look changes nothing
  EXPECT_FALSE(watch.changed_anywhere());
  linear->register_parameter("extra", at::ones({3}));
  EXPECT_FALSE(watch.changed(0));
  EXPECT_TRUE(watch.changed_anywhere());
  watch.rebuild();
  EXPECT_EQ(info_of(watch, "extra").numel, 3);
  EXPECT_THAT(names_of(watch, 0), ElementsAre("weight", "bias")) << "no optimizer steps it";
  EXPECT_FALSE(watch.changed_anywhere());
}

TEST(ModelWatch, AGroupThatIsAddedIsNoticed) {
  torch::nn::Linear linear(2, 2);
  SGD optimizer({linear->weight}, 0.1);
  ModelWatch watch("auto", 50);
  watch.add(libtorch_source(*linear, &optimizer));
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({linear->bias}));
  EXPECT_TRUE(watch.changed(0));
  watch.rebuild();
  EXPECT_FALSE(watch.changed(0));
  std::array<double, 4> rates{};
  EXPECT_EQ(watch.learning_rates(0, rates.data(), 4), 2);
  EXPECT_THAT(rates, ElementsAre(0.1, 0.1, 0, 0));
}

TEST(ModelWatch, AnotherDtypeIsNoticedAlsoWhereTheTensorStaysTheSame) {
  torch::nn::Linear linear(2, 2);
  SGD optimizer(linear->parameters(), 0.1);
  ModelWatch watch("auto", 50);
  watch.add(libtorch_source(*linear, &optimizer));
  const void* before = linear->weight.unsafeGetTensorImpl();
  linear->to(at::kDouble);
  ASSERT_EQ(linear->weight.unsafeGetTensorImpl(), before) << "else the other tests say it all";
  EXPECT_TRUE(watch.changed_anywhere());
  watch.rebuild();
  EXPECT_EQ(info_of(watch, "weight").dtype, "float64");
  EXPECT_FALSE(watch.changed_anywhere());
  {
    const at::NoGradGuard no_grad;
    linear->weight.set_data(at::ones({3, 2}, at::kDouble));
  }
  EXPECT_TRUE(watch.changed_anywhere());
  watch.rebuild();
  EXPECT_THAT(info_of(watch, "weight").shape, ElementsAre(3, 2));
}

TEST(ModelWatch, AParameterThatThawsIsNewsAndOneThatIsFrozenForAWhileIsNot) {
  torch::nn::Linear linear(2, 2);
  linear->weight.set_requires_grad(false);
  SGD optimizer(linear->parameters(), 0.1);
  ModelWatch watch("auto", 50);
  watch.add(libtorch_source(*linear, &optimizer));
  linear->weight.set_requires_grad(true);
  EXPECT_TRUE(watch.changed_anywhere());
  watch.rebuild();
  EXPECT_TRUE(info_of(watch, "weight").requires_grad);
  for (const bool trains : {false, true, false}) {
    linear->weight.set_requires_grad(trains);
    EXPECT_FALSE(watch.changed_anywhere());
  }
}

TEST(ModelWatch, AnUndefinedParameterAndAModuleWithoutAnyAreNoTrouble) {
  torch::nn::Linear linear(torch::nn::LinearOptions(2, 2).bias(false));
  ModelWatch watch("auto", 50);
  watch.add(libtorch_source(*linear, nullptr));
  EXPECT_THAT(names_of(watch, 0), ElementsAre("weight"));
  torch::nn::Module empty;
  ModelWatch nothing("auto", 50);
  nothing.add(libtorch_source(empty, nullptr));
  EXPECT_TRUE(nothing.params(0).empty());
  EXPECT_EQ(nothing.largest_plan(), 0U);
  EXPECT_TRUE(nothing.plan(0)->model->groups.empty());
}

template <typename Optimizer, typename... Args>
std::int64_t steps_after_three(Args... args) {
  torch::nn::Linear linear(2, 2);
  Optimizer optimizer(linear->parameters(), args...);
  ModelWatch watch("auto", 50);
  watch.add(libtorch_source(*linear, &optimizer));
  EXPECT_EQ(watch.steps_done(0), 0);
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    linear->forward(at::ones({1, 2})).sum().backward();
    optimizer.step();
  }
  return watch.steps_done(0);
}

TEST(ModelWatch, StepsDoneBeforeAreFoundInTheOptimizersState) {
  EXPECT_EQ(steps_after_three<torch::optim::Adam>(0.1), 3);
  EXPECT_EQ(steps_after_three<torch::optim::AdamW>(0.1), 3);
  EXPECT_EQ(steps_after_three<torch::optim::RMSprop>(0.1), 3);
  EXPECT_EQ(steps_after_three<torch::optim::Adagrad>(0.1), 3);
  EXPECT_EQ(steps_after_three<SGD>(0.1), 0) << "it keeps no count";
}

TEST(ModelWatch, LearningRatesAreThoseOfTheMomentAndOfEachGroup) {
  torch::nn::Linear linear(2, 2);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{linear->weight},
                      std::make_unique<torch::optim::AdamWOptions>(0.25));
  groups.emplace_back(std::vector{linear->bias}, std::make_unique<torch::optim::AdamWOptions>(0.5));
  torch::optim::AdamW optimizer(groups);
  ModelWatch watch("auto", 50);
  watch.add(libtorch_source(*linear, &optimizer));
  std::array<double, 3> rates{};
  EXPECT_EQ(watch.learning_rates(0, rates.data(), 3), 2);
  EXPECT_THAT(rates, ElementsAre(0.25, 0.5, 0));
  optimizer.param_groups()[1].options().set_lr(0.125);
  EXPECT_EQ(watch.learning_rates(0, rates.data(), 1), 1) << "no more than there is room for";
  EXPECT_EQ(watch.learning_rates(0, rates.data(), 3), 2);
  EXPECT_EQ(rates[1], 0.125);
}

struct NoRateOptions : torch::optim::OptimizerCloneableOptions<NoRateOptions> {};
struct NoRate : torch::optim::Optimizer {
  explicit NoRate(std::vector<at::Tensor> params)
      : Optimizer({std::move(params)}, std::make_unique<NoRateOptions>()) {}
  at::Tensor step(LossClosure /*closure*/) override { return {}; }
};

TEST(ModelWatch, AnOptimizerWithoutALearningRateHasNone) {
  torch::nn::Linear linear(2, 2);
  NoRate optimizer(linear->parameters());
  ModelWatch watch("auto", 50);
  watch.add(libtorch_source(*linear, &optimizer));
  std::array<double, 3> rates{};
  EXPECT_EQ(watch.learning_rates(0, rates.data(), 3), 0);
  EXPECT_EQ(watch.steps_done(0), 0);
  EXPECT_THAT(watch.plan(0)->model->optimizers[0], HasSubstr("NoRate"));

  torch::optim::LBFGS lbfgs(linear->parameters(), 0.75);
  ModelWatch other("auto", 50);
  other.add(libtorch_source(*linear, &lbfgs));
  EXPECT_EQ(other.learning_rates(0, rates.data(), 3), 1);
  EXPECT_EQ(rates[0], 0.75);
}

}  // namespace
}  // namespace gradvane::collectors
