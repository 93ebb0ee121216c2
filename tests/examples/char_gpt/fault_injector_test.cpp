#include "examples/char_gpt/fault_injector.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cmath>
#include <stdexcept>

namespace char_gpt {
namespace {

using testing::AllOf;
using testing::HasSubstr;

at::Tensor parameter(std::int64_t rows, std::int64_t columns) {
  auto tensor = at::zeros({rows, columns}).requires_grad_();
  tensor.mutable_grad() = at::arange(rows * columns, at::kFloat).view({rows, columns});
  return tensor;
}

TEST(FaultInjector, PoisonsTheMiddleElementAtItsStepAlone) {
  const auto weight = parameter(3, 4);
  FaultInjector faults({{.kind = "-inf", .step = 2, .param = "weight"}}, {{"weight", weight}});
  EXPECT_FALSE(faults.poison(1));
  EXPECT_TRUE(weight.grad().isfinite().all().item<bool>());
  EXPECT_FALSE(faults.poison(2)) << "nothing to restore";
  EXPECT_EQ(weight.grad().flatten()[6].item<float>(), -HUGE_VALF);
  EXPECT_EQ(weight.grad().isfinite().sum().item<std::int64_t>(), 11);
}

TEST(FaultInjector, PutsATransientFaultBackAndLeavesTheOther) {
  const auto a = parameter(3, 4);
  const auto b = parameter(2, 2);
  FaultInjector faults({{.kind = "nan", .step = 5, .param = "a", .transient = true},
                        {.kind = "inf", .step = 5, .param = "b"}},
                       {{"a", a}, {"b", b}});
  const auto before = a.grad().clone();
  EXPECT_TRUE(faults.poison(5));
  EXPECT_TRUE(std::isnan(a.grad()[1][2].item<float>()));
  faults.restore();
  EXPECT_TRUE(a.grad().equal(before));
  EXPECT_EQ(b.grad()[1][0].item<float>(), HUGE_VALF);
  EXPECT_FALSE(faults.poison(6));
}

TEST(FaultInjector, WritingAnElementCountsAsAChangeOfTheGradient) {
  const auto weight = parameter(3, 4);
  FaultInjector faults({{.kind = "nan", .step = 1, .param = "w", .transient = true}},
                       {{"w", weight}});
  const auto version = weight.grad()._version();
  ASSERT_TRUE(faults.poison(1));
  faults.restore();
  EXPECT_GT(weight.grad()._version(), version) << "whoever keeps a norm can see that it is stale";
}

TEST(FaultInjector, FindsTheMiddleOfAnyLayout) {
  const auto tensor = at::arange(24, at::kFloat).view({2, 3, 4});
  EXPECT_EQ(middle_element(tensor).item<float>(), 12);
  const auto turned = tensor.permute({2, 0, 1});  // [4, 2, 3], not contiguous
  EXPECT_EQ(middle_element(turned).item<float>(), turned.contiguous().flatten()[12].item<float>());
  EXPECT_EQ(middle_element(at::ones({})).item<float>(), 1);
}

TEST(FaultInjector, NamesSomeParametersWhereItKnowsNoSuchOne) {
  NamedTensors parameters;
  for (int i = 0; i < 9; ++i) parameters.emplace_back("layer" + std::to_string(i), parameter(1, 1));
  try {
    FaultInjector faults({{.kind = "nan", .step = 1, .param = "laier1"}}, parameters);
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("'laier1'"), HasSubstr("layer0, layer1"), HasSubstr("3 more")));
  }
}

TEST(FaultInjector, SaysWhereThereIsNoGradient) {
  FaultInjector faults({{.kind = "nan", .step = 1, .param = "w"}},
                       {{"w", at::zeros({2}).requires_grad_()}});
  EXPECT_THROW(static_cast<void>(faults.poison(1)), std::runtime_error);
}

}  // namespace
}  // namespace char_gpt
