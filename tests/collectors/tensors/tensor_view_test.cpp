#include "collectors/tensors/tensor_view.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace gradvane::collectors {
namespace {

at::Tensor longs(const std::vector<std::int64_t>& values, at::IntArrayRef sizes) {
  return at::tensor(values, at::kLong).view(sizes);
}

/// Sets the element of `tensor` at its row-major index `linear` to NaN, through torch's own indexing.
void poison(const at::Tensor& tensor, std::int64_t linear) {
  const at::NoGradGuard no_grad;
  at::Tensor at = tensor;
  std::int64_t rest = linear;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    std::int64_t inner = 1;
    for (std::int64_t e = d + 1; e < tensor.dim(); ++e) inner *= tensor.size(e);
    at = at.select(0, rest / inner);
    rest %= inner;
  }
  at.fill_(NAN);
}

/// The row-major index of the first NaN in the memory of the view of a float tensor; -1 if there is none.
std::int64_t find_nan(const at::Tensor& tensor) {
  const TensorView view = view_of(tensor);
  const auto* data = static_cast<const float*>(view.data);
  for (std::int64_t i = 0; i < view.numel; ++i)
    if (std::isnan(data[i])) return row_major_index(tensor, i);
  return -1;
}

TEST(TensorViewOfATensor, ReadsEveryFloatDtypeInPlace) {
  const std::vector<std::pair<at::ScalarType, kernels::DType>> dtypes = {
      {at::kFloat, kernels::DType::f32},
      {at::kDouble, kernels::DType::f64},
      {at::kHalf, kernels::DType::f16},
      {at::kBFloat16, kernels::DType::bf16}};
  for (const auto& [torch_dtype, dtype] : dtypes) {
    const at::Tensor tensor = at::ones({3, 5}, torch_dtype);
    const TensorView view = view_of(tensor);
    EXPECT_EQ(view.readable, Readable::yes) << torch_dtype;
    EXPECT_EQ(view.dtype, dtype);
    EXPECT_EQ(view.data, tensor.const_data_ptr());
    EXPECT_EQ(view.numel, 15);
    EXPECT_EQ(view.implicit_zeros, 0);
    EXPECT_FALSE(view.holder.defined());
    EXPECT_EQ(facts_of(tensor).dtype, dtype);
  }
}

TEST(TensorViewOfATensor, AComplexElementIsTwo) {
  const std::vector<std::pair<at::ScalarType, kernels::DType>> dtypes = {
      {at::kComplexHalf, kernels::DType::f16},
      {at::kComplexFloat, kernels::DType::f32},
      {at::kComplexDouble, kernels::DType::f64}};
  for (const auto& [torch_dtype, dtype] : dtypes) {
    const at::Tensor tensor = at::zeros({2, 3}, torch_dtype);
    const TensorView view = view_of(tensor);
    EXPECT_EQ(view.readable, Readable::yes) << torch_dtype;
    EXPECT_EQ(view.dtype, dtype);
    EXPECT_EQ(view.numel, 12);
    EXPECT_EQ(row_major_index(tensor, 0), 0);
    EXPECT_EQ(row_major_index(tensor, 1), 0) << "the imaginary part of the first";
    EXPECT_EQ(row_major_index(tensor, 7), 3);
  }
}

TEST(TensorViewOfATensor, WhatThePassDoesNotReadIsUnsupported) {
  for (const at::ScalarType dtype :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kFloat8_e4m3fn,
        at::kFloat8_e5m2, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz}) {
    const TensorView view = view_of(at::empty({4}, dtype));
    EXPECT_EQ(view.readable, Readable::unsupported) << dtype;
    EXPECT_EQ(view.data, nullptr);
    EXPECT_EQ(facts_of(at::empty({4}, dtype)).dtype, std::nullopt);
  }
  EXPECT_EQ(view_of(at::empty({4}, at::device(at::kMeta))).readable, Readable::unsupported);
  EXPECT_EQ(view_of(at::ones({4, 4}).to_sparse_csr()).readable, Readable::unsupported);
  const at::Tensor negated = at::imag(at::ones({4}, at::kComplexFloat).conj());
  ASSERT_TRUE(negated.is_neg());
  EXPECT_EQ(view_of(negated).readable, Readable::unsupported);
}

TEST(TensorViewOfATensor, UndefinedIsAbsentAndNoElementsAreEmpty) {
  EXPECT_EQ(view_of(at::Tensor()).readable, Readable::absent);
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{0}, {3, 0}, {0, 3, 2}}) {
    const TensorView view = view_of(at::empty(sizes));
    EXPECT_EQ(view.readable, Readable::empty);
    EXPECT_EQ(view.numel, 0);
  }
  const TensorView scalar = view_of(at::scalar_tensor(2.0, at::kFloat));
  EXPECT_EQ(scalar.readable, Readable::yes);
  EXPECT_EQ(scalar.numel, 1);
}

TEST(TensorViewOfATensor, MemoryThatWasTakenAwayIsNotTouched) {
  for (const std::int64_t left : {0, 8}) {
    for (const at::Tensor& tensor :
         {at::ones({64}), at::ones({128}).slice(0, 64, 128), at::ones({128}).slice(0, 0, 128, 2)}) {
      tensor.storage().unsafeGetStorageImpl()->set_nbytes(static_cast<std::size_t>(left));
      const TensorView view = view_of(tensor);
      EXPECT_EQ(view.readable, Readable::unsupported) << left;
      EXPECT_EQ(view.data, nullptr);
    }
    const at::Tensor scalar = at::ones({16}).select(0, 15);
    scalar.storage().unsafeGetStorageImpl()->set_nbytes(static_cast<std::size_t>(left));
    EXPECT_EQ(scalar_value(scalar), std::nullopt);
  }
}

TEST(TensorViewOfATensor, DenseTensorsAreReadInPlaceWhateverTheOrderOfTheirDimensions) {
  at::manual_seed(1);
  const at::Tensor base = at::randn({4, 6, 5, 7});
  const std::vector<at::Tensor> dense = {
      base,
      base.permute({3, 1, 0, 2}),
      base.transpose(0, 3),
      base.contiguous(at::MemoryFormat::ChannelsLast),
      at::randn({4, 3, 2, 5, 6}).contiguous(at::MemoryFormat::ChannelsLast3d),
      at::randn({6, 8}).t(),
      base.slice(0, 1, 3),  // the outermost dimension: still one piece
      at::randn({1, 6, 1, 7}).permute({2, 3, 0, 1}),
      base.unsqueeze(2).transpose(2, 4)};
  for (const at::Tensor& tensor : dense) {
    const TensorView view = view_of(tensor);
    EXPECT_EQ(view.readable, Readable::yes) << tensor.sizes() << tensor.strides();
    EXPECT_EQ(view.data, tensor.const_data_ptr());
    EXPECT_EQ(view.numel, tensor.numel());
  }
}

TEST(TensorViewOfATensor, OthersAreReadThroughACopyOfTheirElements) {
  const at::Tensor base = at::arange(48, at::kFloat).view({6, 8});
  const std::vector<at::Tensor> sparse_in_memory = {base.slice(1, 2, 5),
                                                    base.slice(0, 0, 6, 2),
                                                    base.slice(1, 0, 8, 3).t(),
                                                    at::ones({1}).expand({5, 3}),
                                                    base.select(1, 3).unsqueeze(1).expand({6, 4}),
                                                    base.diagonal()};
  for (const at::Tensor& tensor : sparse_in_memory) {
    const TensorView view = view_of(tensor);
    ASSERT_EQ(view.readable, Readable::copied) << tensor.sizes() << tensor.strides();
    ASSERT_EQ(view.numel, tensor.numel());
    EXPECT_TRUE(view.holder.equal(tensor));
    EXPECT_EQ(view.data, view.holder.const_data_ptr());
  }
}

TEST(TensorViewOfATensor, ABadElementIsFoundAtItsRowMajorIndexInEveryLayout) {
  using Make = at::Tensor (*)();
  const std::vector<Make> layouts = {
      [] { return at::zeros({3, 4, 5}); },
      [] { return at::zeros({5, 7}).t(); },
      [] { return at::zeros({2, 3, 4, 5}).permute({3, 1, 0, 2}); },
      [] { return at::zeros({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast); },
      [] { return at::zeros({1, 6, 1, 7}).permute({2, 3, 0, 1}); },
      [] { return at::zeros({6, 8}).slice(1, 2, 5); },
      [] { return at::zeros({6, 8}).slice(0, 1, 6, 2).t(); },
      [] { return at::zeros({24}).view({2, 3, 4}).transpose(0, 2).unsqueeze(1); },
      [] { return at::zeros({11}); },
      [] { return at::zeros(at::IntArrayRef{}); }};
  for (const Make make : layouts) {
    const std::int64_t numel = make().numel();
    for (std::int64_t i = 0; i < numel; ++i) {
      const at::Tensor tensor = make();
      poison(tensor, i);
      EXPECT_EQ(find_nan(tensor), i) << tensor.sizes() << tensor.strides();
    }
  }
}

TEST(TensorViewOfATensor, OfSeveralBadElementsTheFirstInMemoryIsNamed) {
  const at::Tensor tensor = at::zeros({3, 4}).t();  // 4 x 3, stored column by column
  poison(tensor, 1);                                // row 0, column 1: second column in memory
  poison(tensor, 9);                                // row 3, column 0: first column
  EXPECT_EQ(find_nan(tensor), 9);
  EXPECT_EQ(row_major_index(tensor, -1), -1) << "none stays none";
}

TEST(SparseTensorView, OnlyStoredElementsAreReadAndTheRestAreImplicitZeros) {
  const at::Tensor values = at::arange(6, at::kFloat).view({2, 3}) + 1;
  const at::Tensor tensor = at::sparse_coo_tensor(longs({1, 4}, {1, 2}), values, {5, 3}).coalesce();
  const TensorView view = view_of(tensor);
  EXPECT_EQ(view.readable, Readable::yes);
  EXPECT_EQ(view.data, tensor._values().const_data_ptr());
  EXPECT_EQ(view.numel, 6);
  EXPECT_EQ(view.implicit_zeros, 9);
}

TEST(SparseTensorView, DuplicatesAreSummedAsTheOptimizerWould) {
  const at::Tensor indices = longs({2, 0, 2, 2}, {1, 4});
  const at::Tensor tensor = at::sparse_coo_tensor(indices, at::ones({4, 3}), {5, 3});
  ASSERT_FALSE(tensor.is_coalesced());
  const TensorView view = view_of(tensor);
  EXPECT_EQ(view.readable, Readable::copied);
  EXPECT_EQ(view.numel, 6);
  EXPECT_EQ(view.implicit_zeros, 9);
  EXPECT_EQ(view.holder.to(at::kDouble).norm().item<double>(),
            tensor.to_dense().to(at::kDouble).norm().item<double>());
  EXPECT_FALSE(tensor.is_coalesced()) << "the gradient itself stays as it was";
  EXPECT_EQ(tensor._nnz(), 4);
}

TEST(SparseTensorView, WithoutStoredElementsIsAllZeros) {
  const TensorView none = view_of(at::sparse_coo_tensor({5, 3}, at::TensorOptions(at::kFloat)));
  EXPECT_NE(none.readable, Readable::unsupported);
  EXPECT_EQ(none.numel, 0);
  EXPECT_EQ(none.implicit_zeros, 15);
}

TEST(SparseTensorView, AComplexImplicitZeroIsTwoToo) {
  const at::Tensor tensor =
      at::sparse_coo_tensor(longs({1}, {1, 1}), at::ones({1, 3}, at::kComplexFloat), {5, 3})
          .coalesce();
  const TensorView view = view_of(tensor);
  EXPECT_EQ(view.numel, 6);
  EXPECT_EQ(view.numel + view.implicit_zeros, 2 * tensor.numel());
}

TEST(SparseTensorView, ABadElementIsFoundAtItsIndexInTheDenseTensor) {
  for (const bool coalesced : {true, false}) {
    // Of 4 x 2 x 3, one dimension dense; place (3, 0) is stored twice where not coalesced.
    for (std::int64_t bad = 0; bad < 15; ++bad) {
      at::Tensor values = at::zeros({5, 3});
      poison(values, bad);
      at::Tensor tensor = at::sparse_coo_tensor(
          longs({3, 1, 1, 3, coalesced ? 2 : 3, 0, 1, 0, 1, 0}, {2, 5}), values, {4, 2, 3});
      const at::Tensor dense = tensor.to_dense().isnan().view(-1);
      if (coalesced) tensor = tensor.coalesce();
      const std::int64_t found = find_nan(tensor);
      ASSERT_GE(found, 0) << bad;
      EXPECT_EQ(found, dense.nonzero()[0].item<std::int64_t>()) << bad;
    }
  }
}

TEST(TensorViewOfATensor, LooksWithoutLeavingATrace) {
  const at::Tensor leaf = at::ones({4, 6}).set_requires_grad(true);
  const at::Tensor derived = leaf.t().slice(1, 0, 4, 2) * 2;
  const std::vector<at::Tensor> tensors = {leaf, derived, derived.t(), leaf.slice(1, 0, 6, 2)};
  for (const at::Tensor& tensor : tensors) {
    const auto version = tensor._version();
    const auto* function = tensor.grad_fn().get();
    const TensorView view = view_of(tensor);
    EXPECT_NE(view.data, nullptr);
    EXPECT_FALSE(view.holder.defined() && view.holder.requires_grad());
    EXPECT_TRUE(tensor.requires_grad());
    EXPECT_EQ(tensor._version(), version);
    EXPECT_EQ(tensor.grad_fn().get(), function);
  }
  EXPECT_TRUE(at::GradMode::is_enabled());
  derived.sum().backward();
  EXPECT_EQ(leaf.grad().sum().item<double>(), 2 * derived.numel());
}

TEST(TensorViewOfATensor, ReadsInferenceTensorsInsideAndOutsideOfInferenceMode) {
  at::Tensor plain;
  at::Tensor strided;
  {
    const c10::InferenceMode inference;
    plain = at::ones({4, 4});
    strided = plain.slice(1, 0, 4, 2);
    EXPECT_EQ(view_of(plain).readable, Readable::yes);
    EXPECT_EQ(view_of(strided).readable, Readable::copied);
  }
  ASSERT_TRUE(plain.is_inference());
  EXPECT_EQ(view_of(plain).readable, Readable::yes);
  EXPECT_EQ(view_of(strided).readable, Readable::copied);
  EXPECT_EQ(row_major_index(strided, 3), 3);
}

TEST(ScalarValue, IsTheNumberInATensorOfOneElement) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    EXPECT_EQ(scalar_value(at::scalar_tensor(-2.5, dtype)), -2.5) << dtype;
  EXPECT_EQ(scalar_value(at::full({1, 1, 1}, 3.0)), 3.0);
  EXPECT_EQ(scalar_value(at::arange(5, at::kFloat).select(0, 3)), 3.0) << "at an offset";
  EXPECT_TRUE(std::isnan(scalar_value(at::scalar_tensor(NAN, at::kFloat)).value()));
  EXPECT_EQ(scalar_value(at::scalar_tensor(-INFINITY, at::kHalf)), -INFINITY);
}

TEST(ScalarValue, IsAbsentForEverythingElse) {
  EXPECT_EQ(scalar_value(at::Tensor()), std::nullopt);
  EXPECT_EQ(scalar_value(at::ones({2})), std::nullopt);
  EXPECT_EQ(scalar_value(at::empty({0})), std::nullopt);
  EXPECT_EQ(scalar_value(at::scalar_tensor(1, at::kLong)), std::nullopt);
  EXPECT_EQ(scalar_value(at::scalar_tensor(1, at::kComplexFloat)), std::nullopt);
  EXPECT_EQ(scalar_value(at::empty(at::IntArrayRef{}, at::device(at::kMeta))), std::nullopt);
  EXPECT_EQ(scalar_value(at::ones({1}).to_sparse()), std::nullopt);
}

TEST(ScalarValue, OfALossThatRequiresGradLeavesItAlone) {
  const at::Tensor x = at::ones({3}).set_requires_grad(true);
  const at::Tensor loss = (x * x).sum();
  EXPECT_EQ(scalar_value(loss), 3.0);
  loss.backward();
  EXPECT_EQ(x.grad().sum().item<double>(), 6.0);
}

}  // namespace
}  // namespace gradvane::collectors
