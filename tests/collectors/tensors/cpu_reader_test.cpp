#include "collectors/tensors/cpu_reader.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace gradvane::collectors {
namespace {

using kernels::TensorStats;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<TensorStats> read(CpuReader& reader, const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) reader.set(i, tensors[i], EntryTag::read);
  EXPECT_TRUE(reader.read());
  return {reader.stats().begin(), reader.stats().end()};
}

std::vector<TensorStats> read(const std::vector<at::Tensor>& tensors) {
  CpuReader reader;
  reader.resize(tensors.size());
  return read(reader, tensors);
}

/// What torch itself says of a tensor, in fp64 and through its own kernels.
void expect_like_torch(const TensorStats& stats, const at::Tensor& tensor,
                       const std::string& what) {
  SCOPED_TRACE(what);
  at::Tensor x = tensor.detach();
  if (x.is_sparse()) x = x.to_dense();
  if (x.is_complex()) x = at::view_as_real(x);
  x = x.to(at::kDouble).contiguous().view(-1);
  const at::Tensor finite = x.isfinite();
  const at::Tensor bad = finite.logical_not().nonzero().view(-1);
  const at::Tensor y = x.masked_select(finite);
  const at::Tensor nonzero = y.masked_select(y.ne(0)).abs();
  const auto count = [](const at::Tensor& mask) { return mask.sum().item<std::int64_t>(); };

  EXPECT_EQ(stats.numel, x.numel());
  EXPECT_EQ(stats.nan, count(x.isnan()));
  EXPECT_EQ(stats.pos_inf, count(x.eq(kInf)));
  EXPECT_EQ(stats.neg_inf, count(x.eq(-kInf)));
  EXPECT_EQ(stats.zero, count(x.eq(0)));
  EXPECT_EQ(stats.abs_max, nonzero.numel() == 0 ? 0 : nonzero.max().item<double>());
  EXPECT_EQ(stats.abs_min_nonzero, nonzero.numel() == 0 ? kInf : nonzero.min().item<double>());
  const double norm = y.norm().item<double>();
  EXPECT_NEAR(stats.norm(), norm, 1e-6 * norm);
  EXPECT_NEAR(stats.total(), y.sum().item<double>(), 2e-6 * y.abs().sum().item<double>());
  if (tensor.is_complex()) {
    EXPECT_EQ(stats.first_nonfinite, bad.numel() == 0 ? -1 : bad[0].item<std::int64_t>() / 2);
  } else {
    EXPECT_EQ(stats.first_nonfinite, bad.numel() == 0 ? -1 : bad[0].item<std::int64_t>());
  }
}

TEST(CpuReader, AgreesWithTorchOverManyShapesDtypesAndLayouts) {
  at::manual_seed(3);
  const std::vector<std::vector<std::int64_t>> shapes = {
      {1},       {2},     {31},         {33},          {127},    {4096},
      {4097},    {65537}, {1, 1},       {3, 5},        {64, 65}, {257, 3},
      {1000, 7}, {2, 1},  {5, 1, 4, 3}, {8, 16, 3, 3}, {},       {300, 301}};
  std::vector<at::Tensor> tensors;
  std::vector<std::string> names;
  for (const auto& shape : shapes) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                       at::kComplexFloat, at::kComplexDouble}) {
      const at::Tensor tensor = at::randn(shape, at::kFloat).to(dtype);
      names.push_back(c10::toString(dtype) + std::string(" of ") + std::to_string(tensor.numel()) +
                      " elements");
      tensors.push_back(tensor);
    }
    if (shape.size() < 2) continue;
    const at::Tensor base = at::randn(shape);
    std::vector<std::int64_t> thrice(shape.size(), -1);
    thrice[0] = 3;
    for (const at::Tensor& view :
         {base.transpose(0, 1), base.slice(0, 0, shape[0], 2),
          base.select(1, 0).unsqueeze(0).expand(thrice), base.slice(1, shape[1] / 2, shape[1])}) {
      tensors.push_back(view);
      names.push_back("a view of " + std::to_string(view.numel()) + " elements");
    }
    if (shape.size() == 4) {
      tensors.push_back(base.contiguous(at::MemoryFormat::ChannelsLast));
      names.emplace_back("channels last");
    }
  }
  const auto stats = read(tensors);
  ASSERT_EQ(stats.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    expect_like_torch(stats[i], tensors[i], names[i]);
}

TEST(CpuReader, AgreesWithTorchOnOneBadElementOfAnyKindInAnyLayout) {
  for (const double bad : {kNan, kInf, -kInf}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      std::vector<at::Tensor> tensors = {
          at::ones({5000}, dtype), at::ones({70, 80}, dtype).t(), at::ones({60, 90}, dtype),
          at::ones({6, 7, 8, 9}, dtype).contiguous(at::MemoryFormat::ChannelsLast)};
      tensors[2] = tensors[2].slice(1, 10, 80);
      tensors[0][4321] = bad;
      tensors[1][17][33] = bad;
      tensors[2][59][69] = bad;
      tensors[3][5][1][2][3] = bad;
      const auto stats = read(tensors);
      for (std::size_t i = 0; i < tensors.size(); ++i)
        expect_like_torch(stats[i], tensors[i], c10::toString(dtype));
    }
  }
}

TEST(CpuReader, NormsOfNarrowDtypesAreThoseOfTheirValuesNotOfTheirRange) {
  const std::vector<at::Tensor> tensors = {
      at::full({1000}, 6e4, at::kHalf), at::full({1000}, 1e38, at::kBFloat16),
      at::full({1000}, 1e20, at::kFloat), at::full({1000}, 1e-30, at::kFloat),
      at::full({1000}, 1e200, at::kDouble)};
  const auto stats = read(tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const double each = tensors[i].to(at::kDouble)[0].item<double>();
    EXPECT_NEAR(stats[i].norm() / each, std::sqrt(1000.0), 1e-5) << i;
    EXPECT_EQ(stats[i].nonfinite(), 0) << "our own sums may not overflow";
  }
}

TEST(CpuReader, MoreZerosThanFloatCanCountAreCounted) {
  const std::int64_t many = (std::int64_t{1} << 24) + 3;
  const auto stats = read({at::zeros({many}, at::kHalf)});
  EXPECT_EQ(stats[0].zero, many);
  EXPECT_EQ(stats[0].numel, many);
}

TEST(CpuReader, SaysOfEveryEntryWhyItWasNotRead) {
  CpuReader reader;
  reader.resize(8);
  const at::Tensor good = at::ones({4});
  const at::Tensor undefined;
  const at::Tensor empty = at::empty({0});
  const at::Tensor whole = at::ones({4}, at::kInt);
  const double number = 2.5;
  reader.set(0, good, EntryTag::read);
  reader.set(1, good, EntryTag::frozen);
  reader.set(2, undefined, EntryTag::read);
  reader.set(3, empty, EntryTag::read);
  reader.set(4, whole, EntryTag::read);
  reader.set_scalar(5, &number);
  reader.set_scalar(6, nullptr);
  ASSERT_TRUE(reader.read());
  const EntryTag expected[] = {EntryTag::read,    EntryTag::frozen,      EntryTag::missing,
                               EntryTag::empty,   EntryTag::unsupported, EntryTag::read,
                               EntryTag::missing, EntryTag::missing};  // the last was not set
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(tag_of(reader.stats()[i]), expected[i]) << i;
  EXPECT_EQ(reader.stats()[5].total(), 2.5);
  EXPECT_EQ(reader.stats()[5].numel, 1);
  EXPECT_DOUBLE_EQ(reader.sum_sq(8), 4 + 2.5 * 2.5);
  EXPECT_DOUBLE_EQ(reader.sum_sq(5), 4);
}

TEST(CpuReader, AnEntryThatIsNotSetAgainIsMissingInsteadOfReadFromMemoryThatMayBeGone) {
  CpuReader reader;
  reader.resize(2);
  at::Tensor tensor = at::ones({100'000});
  (void)read(reader, {tensor, tensor});
  const at::Tensor other = at::full({100'000}, 2.0);
  reader.set(0, other, EntryTag::read);
  tensor = at::Tensor();  // freed
  ASSERT_TRUE(reader.read());
  EXPECT_EQ(tag_of(reader.stats()[0]), EntryTag::read);
  EXPECT_EQ(tag_of(reader.stats()[1]), EntryTag::missing);
}

TEST(CpuReader, AScalarThatIsNanIsCounted) {
  CpuReader reader;
  reader.resize(1);
  const double values[] = {kNan, -kInf, 1.0};
  for (const double& value : values) {
    reader.set_scalar(0, &value);
    ASSERT_TRUE(reader.read());
    EXPECT_EQ(reader.stats()[0].nonfinite(), std::isfinite(value) ? 0 : 1);
  }
}

TEST(CpuReader, ATensorThatGoesMissingAndComesBackKeepsThePlan) {
  CpuReader reader;
  reader.resize(3);
  const at::Tensor a = at::full({1000}, 1.0);
  const at::Tensor b = at::full({20, 50}, 2.0);
  const at::Tensor c = at::full({7}, 3.0);
  const at::Tensor undefined;
  const auto first = read(reader, {a, b, c});
  EXPECT_EQ(reader.rebuilds(), 1);
  const auto without = read(reader, {a, undefined, c});
  EXPECT_EQ(tag_of(without[1]), EntryTag::missing);
  EXPECT_EQ(without[0], first[0]);
  EXPECT_EQ(without[2], first[2]);
  const auto again = read(reader, {a, b, c});
  EXPECT_EQ(again, first);
  EXPECT_EQ(tag_of(read(reader, {undefined, undefined, undefined})[0]), EntryTag::missing);
  EXPECT_EQ(read(reader, {a, b, c}), first);
  EXPECT_EQ(reader.rebuilds(), 1);
}

TEST(CpuReader, AnotherSizeOrDtypeMakesOneNewPlan) {
  CpuReader reader;
  reader.resize(2);
  const at::Tensor a = at::ones({1000});
  for (int i = 0; i < 5; ++i) (void)read(reader, {a, at::ones({10})});
  EXPECT_EQ(reader.rebuilds(), 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(reader, {a, at::ones({11})})[1].numel, 11);
  EXPECT_EQ(reader.rebuilds(), 2);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(read(reader, {a, at::ones({11}, at::kHalf)})[1].norm(), std::sqrt(11.0));
  EXPECT_EQ(reader.rebuilds(), 3);
  for (int i = 0; i < 5; ++i) (void)read(reader, {a, at::ones({11}, at::kHalf).clone()});
  EXPECT_EQ(reader.rebuilds(), 3) << "another address is no change";
  reader.resize(2);
  EXPECT_EQ(reader.rebuilds(), 0);
}

TEST(CpuReader, CopiesAreCountedForTheReadInWhichTheyWereMade) {
  CpuReader reader;
  reader.resize(3);
  const at::Tensor dense = at::ones({8, 8});
  const at::Tensor strided = dense.slice(1, 0, 8, 2);
  (void)read(reader, {dense, dense.t(), dense});
  EXPECT_EQ(reader.copies(), 0);
  (void)read(reader, {dense, strided, strided.t()});
  EXPECT_EQ(reader.copies(), 2);
  (void)read(reader, {dense, dense, dense});
  EXPECT_EQ(reader.copies(), 0);
}

TEST(CpuReader, AnUncoalescedEmbeddingGradientHasTheNormOfItsDenseTwin) {
  at::manual_seed(5);
  const at::Tensor tokens = at::randint(40, {8, 16}, at::kLong);
  std::vector<at::Tensor> gradients;
  for (const bool sparse : {true, false}) {
    at::manual_seed(6);
    const at::Tensor table = at::randn({100, 12}).set_requires_grad(true);
    const at::Tensor out = at::embedding(table, tokens, -1, false, sparse);
    out.pow(3).sum().backward();
    gradients.push_back(table.grad());
  }
  ASSERT_TRUE(gradients[0].is_sparse());
  ASSERT_FALSE(gradients[0].is_coalesced());
  const auto stats = read(gradients);
  expect_like_torch(stats[0], gradients[0], "sparse");
  EXPECT_NEAR(stats[0].norm(), stats[1].norm(), 1e-5 * stats[1].norm());
  EXPECT_EQ(stats[0].zero, stats[1].zero);
  EXPECT_EQ(stats[0].numel, stats[1].numel);
}

TEST(CpuReader, AnEntryThatIsSparseAndChangesItsFillIsReadRightEachTime) {
  CpuReader reader;
  reader.resize(1);
  for (const std::int64_t rows : {3, 0, 5, 5, 1}) {
    at::Tensor dense = at::zeros({8, 4});
    dense.slice(0, 0, rows).fill_(2);
    const at::Tensor sparse = dense.to_sparse(1);
    expect_like_torch(read(reader, {sparse})[0], dense, std::to_string(rows) + " rows");
  }
}

TEST(CpuReader, ThreadsDoNotChangeASingleBit) {
  at::manual_seed(7);
  std::vector<at::Tensor> tensors;
  for (const std::int64_t numel : {1, 100, 70'000, 1'000'000, 5, 300'000}) {
    tensors.push_back(at::randn({numel}) * 1e-3);
    tensors.push_back(at::randn({numel}).to(at::kBFloat16));
  }
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = read(tensors);
  for (const int threads : {2, 3, 4}) {
    at::set_num_threads(threads);
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto many = read(tensors);
      for (std::size_t i = 0; i < many.size(); ++i)
        EXPECT_EQ(std::memcmp(&many[i], &one[i], sizeof(TensorStats)), 0) << i;
    }
  }
  at::set_num_threads(before);
}

TEST(CpuReader, ReadsGradientsWithoutTouchingTheGraph) {
  const at::Tensor w = at::ones({4, 4}).set_requires_grad(true);
  const at::Tensor loss = w.t().slice(1, 0, 4, 2).pow(2).sum();
  loss.backward({}, /*retain_graph=*/true);
  const auto version = w.grad()._version();
  const auto version_of_w = w._version();
  (void)read({w.grad(), w, w.grad().slice(1, 0, 4, 2)});
  EXPECT_EQ(w.grad()._version(), version);
  EXPECT_EQ(w._version(), version_of_w);
  EXPECT_FALSE(w.grad().requires_grad());
  loss.backward();
  EXPECT_EQ(w.grad().sum().item<double>(), 2 * 2 * 8);
}

TEST(CpuReader, NothingToReadIsFine) {
  CpuReader reader;
  reader.resize(0);
  EXPECT_TRUE(reader.read());
  EXPECT_TRUE(reader.stats().empty());
  EXPECT_EQ(reader.sum_sq(0), 0);
}

}  // namespace
}  // namespace gradvane::collectors
