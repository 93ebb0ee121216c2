#include "collectors/tensors/finite_checks.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

namespace gradvane::collectors {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Finiteness of(const at::Tensor& tensor) {
  FiniteChecks checks(nullptr);
  if (checks.add(tensor) < 0) return Finiteness::unknown;
  return checks.take().of.at(0);
}

at::Tensor with(double value, at::ScalarType type, std::int64_t size, std::int64_t at) {
  at::Tensor tensor = at::ones({size}, at::kFloat);
  tensor.index_put_({at::tensor(at)}, at::full({}, value));
  return tensor.to(type);
}

TEST(WhetherATensorIsFinite, IsSeenAtEveryPlaceOfItAndInEveryType) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (const std::int64_t size : {1, 7, 64, 1000})
      for (std::int64_t at = 0; at < size; at += size < 100 ? 1 : 37) {
        EXPECT_EQ(of(with(kNan, type, size, at)), Finiteness::nan) << type << size << ' ' << at;
        EXPECT_EQ(of(with(kInfinity, type, size, at)), Finiteness::plus_infinity);
        EXPECT_EQ(of(with(-kInfinity, type, size, at)), Finiteness::minus_infinity);
        EXPECT_EQ(of(with(3, type, size, at)), Finiteness::finite);
      }
}

TEST(WhetherATensorIsFinite, IsTrueOfTheLargestNumbersOfAType) {
  EXPECT_EQ(of(at::full({100'000}, 3e38)), Finiteness::finite) << "no sum that overflows";
  EXPECT_EQ(of(at::full({100'000}, 65504, at::kHalf)), Finiteness::finite);
  EXPECT_EQ(of(at::full({10}, -1e300, at::kDouble)), Finiteness::finite);
}

TEST(WhetherATensorIsFinite, SaysTheWorst) {
  EXPECT_EQ(of(at::tensor({-kInfinity, 1.0, kInfinity})), Finiteness::plus_infinity);
  EXPECT_EQ(of(at::tensor({-kInfinity, kNan, kInfinity})), Finiteness::nan);
}

TEST(WhetherATensorIsFinite, IsAskedOfWhatIsNotDenseToo) {
  at::Tensor bad = at::ones({6, 8});
  bad[5][7] = kNan;
  EXPECT_EQ(of(bad.t()), Finiteness::nan);
  EXPECT_EQ(of(bad.slice(0, 0, 5)), Finiteness::finite) << "only what the view shows";
  EXPECT_EQ(of(bad.slice(1, 0, 8, 2)), Finiteness::finite);
  EXPECT_EQ(of(bad.slice(1, 1, 8, 2)), Finiteness::nan);
  EXPECT_EQ(of(at::full({}, kNan).expand({1000, 1000})), Finiteness::nan);
  EXPECT_EQ(of(bad.select(0, 5).unsqueeze(1).expand({8, 50})), Finiteness::nan);
  EXPECT_EQ(of(at::complex(at::ones({4}), at::full({4}, kNan))), Finiteness::nan);
  EXPECT_EQ(of(at::complex(at::ones({4}), at::ones({4})).conj()), Finiteness::finite);
  const at::Tensor sparse = at::sparse_coo_tensor(at::tensor({{1}}, at::kLong).view({1, 1}),
                                                  at::full({1}, kNan), {5}, at::kFloat);
  EXPECT_EQ(of(sparse), Finiteness::nan);
  EXPECT_EQ(of(at::ones({3}).to(at::kFloat8_e4m3fn)), Finiteness::finite);
  EXPECT_EQ(of(at::full({3}, kNan).to(at::kFloat8_e4m3fn)), Finiteness::nan);
}

TEST(WhetherATensorIsFinite, IsNotAskedOfWhatHasNoNumbers) {
  EXPECT_EQ(of({}), Finiteness::unknown);
  EXPECT_EQ(of(at::empty({0})), Finiteness::unknown);
  EXPECT_EQ(of(at::ones({3}, at::kLong)), Finiteness::unknown);
  EXPECT_EQ(of(at::ones({3}, at::kBool)), Finiteness::unknown);
  EXPECT_EQ(of(at::empty({3}, at::TensorOptions(at::kMeta))), Finiteness::unknown);
}

TEST(FiniteChecksOfAStep, AnswerInTheOrderOfTheQuestionsWhateverTheTypes) {
  FiniteChecks checks(nullptr);
  EXPECT_EQ(checks.add(at::ones({3})), 0);
  EXPECT_EQ(checks.add(at::full({3}, kNan, at::kHalf)), 1);
  EXPECT_EQ(checks.add(at::ones({3}, at::kInt)), -1);
  EXPECT_EQ(checks.add(at::full({3}, kInfinity, at::kDouble)), 2);
  EXPECT_EQ(checks.add(at::full({3}, 1e300, at::kDouble)), 3);
  EXPECT_EQ(checks.add(at::full({3}, -kInfinity, at::kBFloat16)), 4);
  EXPECT_EQ(checks.add(at::ones({3}, at::kHalf)), 5);
  const FiniteChecks::Answers answers = checks.take();
  EXPECT_EQ(answers.of,
            (std::vector{Finiteness::finite, Finiteness::nan, Finiteness::plus_infinity,
                         Finiteness::finite, Finiteness::minus_infinity, Finiteness::finite}));
  EXPECT_EQ(answers.host_syncs, 0) << "a CPU is not waited for";
  EXPECT_EQ(checks.size(), 0U);
  EXPECT_TRUE(checks.take().of.empty());
}

TEST(FiniteChecksOfAStep, AreRememberedByTheThousand) {
  FiniteChecks checks(nullptr);
  for (int i = 0; i < 5000; ++i)
    ASSERT_EQ(
        checks.add(at::full({1}, i % 1000 == 7 ? kNan : 1.0, i % 3 == 0 ? at::kHalf : at::kFloat)),
        i);
  const auto answers = checks.take().of;
  ASSERT_EQ(answers.size(), 5000U);
  for (std::size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(answers[i], i % 1000 == 7 ? Finiteness::nan : Finiteness::finite) << i;
  EXPECT_EQ(checks.add(at::ones({1})), 0) << "from the beginning again";
}

TEST(FiniteChecksOfAStep, LeaveNoTraceOnTheTensorOrTheGraph) {
  at::Tensor leaf = at::randn({4, 4}).requires_grad_();
  const at::Tensor value = leaf * 2;
  const auto version = value._version();
  const auto uses = value.use_count();
  FiniteChecks checks(nullptr);
  checks.add(value);
  EXPECT_EQ(value._version(), version);
  EXPECT_EQ(value.use_count(), uses);
  EXPECT_EQ(checks.take().of.at(0), Finiteness::finite);
  const c10::InferenceMode inference;
  EXPECT_EQ(of(at::full({3}, kNan)), Finiteness::nan);
}

TEST(FiniteChecksOfAStep, MayBeAskedByManyThreads) {
  FiniteChecks checks(nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&checks, t] {
      for (int i = 0; i < 200; ++i) checks.add(at::full({8}, t == 3 ? kNan : 1.0));
    });
  for (auto& thread : threads) thread.join();
  const auto answers = checks.take().of;
  EXPECT_EQ(answers.size(), 800U);
  EXPECT_EQ(std::count(answers.begin(), answers.end(), Finiteness::nan), 200);
}

}  // namespace
}  // namespace gradvane::collectors
