#include "collectors/tensors/update_sample.hpp"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace gradvane::collectors {
namespace {

using kernels::TensorStats;

at::Tensor trainable(const at::Tensor& tensor) { return tensor.set_requires_grad(true); }

void move(const at::Tensor& param, const at::Tensor& delta, double factor = 1) {
  const at::NoGradGuard no_grad;
  param.add_(delta, factor);
}

/// The sample of an update of `params` made by `update`.
std::vector<TensorStats> sample_of(const std::vector<at::Tensor>& params, std::int64_t per_param,
                                   const std::function<void()>& update) {
  UpdateSample sample;
  sample.resize(params, per_param);
  sample.keep(params);
  update();
  std::vector<TensorStats> out(params.size());
  sample.difference(params, out);
  return out;
}

TEST(UpdateSample, IsExactWhereItCoversEveryElement) {
  at::manual_seed(1);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const std::int64_t numel : {1, 2, 7, 100, 4096}) {
      const at::Tensor w = trainable(at::randn({numel}).to(dtype));
      const at::Tensor before = w.detach().to(at::kDouble, false, /*copy=*/true);
      const auto out = sample_of({w}, 4096, [&] { move(w, at::randn({numel}).to(dtype), 0.1); });
      const at::Tensor delta = w.detach().to(at::kDouble) - before;
      EXPECT_EQ(out[0].numel, numel);
      EXPECT_EQ(out[0].zero, delta.eq(0).sum().item<std::int64_t>());
      EXPECT_NEAR(out[0].norm(), delta.norm().item<double>(), 1e-12);
      EXPECT_NEAR(out[0].total(), delta.sum().item<double>(), 1e-11);
      EXPECT_EQ(out[0].abs_max, delta.abs().max().item<double>());
    }
  }
}

TEST(UpdateSample, NoUpdateIsAMeasuredZero) {
  const at::Tensor w = trainable(at::randn({1000}));
  const auto out = sample_of({w}, 64, [] {});
  EXPECT_EQ(out[0].numel, 64);
  EXPECT_EQ(out[0].zero, 64);
  EXPECT_EQ(out[0].norm(), 0);
}

TEST(UpdateSample, TakesAsManyElementsAsItIsGivenAndEachAtMostOnce) {
  for (const std::int64_t numel : {10, 100, 1000, 12'345}) {
    for (const std::int64_t wanted : {1, 3, 64, 1000}) {
      const at::Tensor w = trainable(at::zeros({numel}, at::kDouble));
      const auto out = sample_of({w}, wanted, [&] { move(w, at::ones({numel}, at::kDouble)); });
      EXPECT_EQ(out[0].numel, std::min(numel, wanted));
      EXPECT_EQ(out[0].total(), static_cast<double>(std::min(numel, wanted)));
    }
  }
  // Each one of all elements in turn: one that is sampled twice would count 4 instead of 1.
  constexpr std::int64_t kNumel = 60;
  for (const std::int64_t wanted : {59, 31, 7}) {
    std::int64_t seen = 0;
    for (std::int64_t moved = 0; moved < kNumel; ++moved) {
      const at::Tensor w = trainable(at::zeros({kNumel}));
      const auto out = sample_of({w}, wanted, [&] {
        const at::NoGradGuard no_grad;
        w[moved] = 1;
      });
      EXPECT_LE(out[0].total(), 1);
      seen += static_cast<std::int64_t>(out[0].total());
    }
    EXPECT_EQ(seen, wanted);
  }
}

TEST(UpdateSample, LooksAtManyColumnsOfAMatrixWhateverItsWidth) {
  for (const std::int64_t width : {256, 768, 1000, 1024, 4096}) {
    const at::Tensor w = trainable(at::zeros({4096 * 256 / width, width}, at::kDouble));
    // Column c moves by c + 1 in every row: which columns were seen shows in the largest and the mean.
    const auto out = sample_of({w}, 4096, [&] {
      const at::NoGradGuard no_grad;
      for (std::int64_t c = 0; c < width; ++c) w.select(1, c).fill_(static_cast<double>(c + 1));
    });
    const double mean = out[0].total() / static_cast<double>(out[0].numel);
    const auto size = static_cast<double>(width);
    EXPECT_NEAR(mean, (size + 1) / 2, 0.03 * size) << width;
    EXPECT_GT(out[0].abs_max, 0.98 * size) << width;
    EXPECT_LT(out[0].abs_min_nonzero, 0.02 * size + 1) << width;
  }
}

TEST(UpdateSample, TheEstimateIsAsGoodAsItIsSaidToBe) {
  struct Case {
    const char* what;
    double bound;  // of |estimate / exact - 1|, over the twenty updates
    at::Tensor (*update)();
  };
  constexpr std::int64_t kSide = 512;
  for (const Case& tried :
       {Case{"normal", 0.05, [] { return at::randn({kSide, kSide}); }},
        Case{"all alike", 1e-4, [] { return at::randn({kSide, kSide}).sign(); }},
        Case{"columns of their own scale", 0.25,
             [] { return at::randn({kSide, kSide}) * at::randn({1, kSide}).exp(); }},
        Case{"dead inputs", 0.08,
             [] { return at::randn({kSide, kSide}) * at::rand({1, kSide}).gt(0.5); }},
        Case{"dead units", 0.08,
             [] { return at::randn({kSide, kSide}) * at::rand({kSide, 1}).gt(0.5); }},
        Case{"one row in ten", 0.2,
             [] { return at::randn({kSide, kSide}) * at::rand({kSide, 1}).lt(0.1); }}}) {
    at::manual_seed(9);
    for (int i = 0; i < 20; ++i) {
      const at::Tensor w = trainable(0.02 * at::randn({kSide, kSide}));
      const at::Tensor before = w.detach().to(at::kDouble, false, /*copy=*/true);
      const auto out = sample_of({w}, 4096, [&] { move(w, tried.update(), 1e-4); });
      const double exact = (w.detach().to(at::kDouble) - before).norm().item<double>();
      const double estimate =
          std::sqrt(static_cast<double>(w.numel()) / static_cast<double>(out[0].numel)) *
          out[0].norm();
      EXPECT_NEAR(estimate / exact, 1, tried.bound) << tried.what;
    }
  }
}

TEST(UpdateSample, TheSamplesOfManyParametersShareAFixedRoom) {
  std::vector<at::Tensor> params;
  for (int i = 0; i < 1000; ++i) params.push_back(trainable(at::zeros({200})));
  const auto out = sample_of(params, 4096, [&] {
    for (const at::Tensor& param : params) move(param, at::ones({200}));
  });
  std::int64_t used = 0;
  for (const TensorStats& stats : out) {
    EXPECT_EQ(stats.numel, UpdateSample::kMaxElements / 1000);
    used += stats.numel;
  }
  EXPECT_LE(used, UpdateSample::kMaxElements);

  params.assign(70'000, params[0]);
  UpdateSample crowded;
  crowded.resize(params, 4096);
  crowded.keep(params);
  std::vector<TensorStats> crowd(params.size());
  crowded.difference(params, crowd);
  EXPECT_EQ(std::ranges::count(crowd, 1, &TensorStats::numel), UpdateSample::kMaxElements);
}

TEST(UpdateSample, NonfiniteDifferencesAreCountedAndLeftOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor w = trainable(at::zeros({8}));
  const auto out = sample_of({w}, 8, [&] {
    const at::NoGradGuard no_grad;
    w[1] = nan;
    w[2] = inf;
    w[3] = -inf;
    w[4] = 3;
    w[5] = -4;
  });
  EXPECT_EQ(out[0].numel, 8);
  EXPECT_EQ(out[0].nonfinite(), 3);
  EXPECT_EQ(out[0].zero, 3);
  EXPECT_EQ(out[0].norm(), 5);

  // A weight that was NaN and stays so has no difference either.
  const auto still = sample_of({w}, 8, [] {});
  EXPECT_EQ(still[0].nonfinite(), 3);
  EXPECT_EQ(still[0].norm(), 0);
}

TEST(UpdateSample, DifferencesWhoseSquaresNoDoubleHoldsAreSummedAllTheSame) {
  for (const double size : {1e-200, 1e200}) {
    const at::Tensor w = trainable(at::zeros({2}, at::kDouble));
    const auto out = sample_of({w}, 2, [&] {
      const at::NoGradGuard no_grad;
      w[0] = 3 * size;
      w[1] = -4 * size;
    });
    EXPECT_EQ(out[0].nonfinite(), 0);
    EXPECT_NEAR(out[0].norm() / (5 * size), 1, 1e-14);
  }
}

TEST(UpdateSample, WhatCannotBeSampledHasNoElements) {
  const at::Tensor frozen = at::ones({8});
  const at::Tensor undefined;
  const at::Tensor empty = trainable(at::empty({0}));
  const at::Tensor complex = trainable(at::ones({8}, at::kComplexFloat));
  const at::Tensor whole = at::ones({8}, at::kInt);
  const at::Tensor strided = trainable(at::ones({8, 8}).slice(1, 0, 8, 2));
  const at::Tensor sparse = trainable(at::ones({4, 4}).to_sparse());
  const at::Tensor meta = trainable(at::empty({8}, at::device(at::kMeta)));
  const at::Tensor good = trainable(at::ones({8}));
  const std::vector<at::Tensor> params = {frozen,  undefined, empty, complex, whole,
                                          strided, sparse,    meta,  good};
  const auto out = sample_of(params, 8, [&] { move(good, at::ones({8})); });
  for (std::size_t i = 0; i + 1 < params.size(); ++i) EXPECT_EQ(out[i].numel, 0) << i;
  EXPECT_EQ(out.back().numel, 8);
}

TEST(UpdateSample, DenseParametersInAnyOrderOfDimensionsAreSampled) {
  const at::Tensor w =
      trainable(at::zeros({4, 3, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast));
  const auto out = sample_of({w}, 1000, [&] { move(w, at::ones({4, 3, 5, 5})); });
  EXPECT_EQ(out[0].numel, 300);
  EXPECT_EQ(out[0].total(), 300);
}

TEST(UpdateSample, AParameterThatChangedInBetweenHasNoDifference) {
  for (const auto& replacement :
       {at::ones({9}), at::ones({8}, at::kDouble), at::ones({8}).to_sparse(), at::Tensor()}) {
    std::vector<at::Tensor> params = {trainable(at::ones({8})), trainable(at::ones({8}))};
    UpdateSample sample;
    sample.resize(params, 8);
    sample.keep(params);
    params[0] = replacement;
    std::vector<TensorStats> out(2);
    sample.difference(params, out);
    EXPECT_EQ(out[0].numel, 0);
    EXPECT_EQ(out[1].numel, 8);
    sample.keep(params);  // still not what room was made for
    sample.difference(params, out);
    EXPECT_EQ(out[0].numel, 0);
  }
}

TEST(UpdateSample, FewerParametersThanThereWasRoomForAreNoTrouble) {
  const std::vector<at::Tensor> params(3, trainable(at::ones({8})));
  UpdateSample sample;
  sample.resize(params, 8);
  sample.keep(params);
  std::vector<TensorStats> out(3);
  sample.difference(std::span(params).first(1), out);
  EXPECT_EQ(out[0].numel, 8);
  EXPECT_EQ(out[2].numel, 0);
  sample.keep(std::span(params).first(1));
  sample.difference(params, out);
  EXPECT_EQ(out[1].numel, 0);
}

TEST(UpdateSample, WithoutAKeptSampleThereIsNoDifference) {
  const std::vector<at::Tensor> params = {trainable(at::ones({8}))};
  UpdateSample sample;
  sample.resize(params, 8);
  std::vector<TensorStats> out(1);
  sample.difference(params, out);
  EXPECT_EQ(out[0].numel, 0);
  sample.resize(params, 0);
  sample.keep(params);
  sample.difference(params, out);
  EXPECT_EQ(out[0].numel, 0);
}

}  // namespace
}  // namespace gradvane::collectors
