// The recorder with parameters on a device, over a CUDA runtime that is not there.
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <array>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "agent/step/step_recorder.hpp"
#include "collectors/model/libtorch_source.hpp"
#include "collectors/tensors/device_identity.hpp"
#include "collectors/tensors/device_reads.hpp"
#include "tests/kernels/device/fake_cuda.hpp"

namespace gradvane::agent {
namespace {

using kernels::test::fake_cuda;
using kernels::test::FakeCuda;

class RecorderOnADevice : public testing::Test {
 protected:
  static constexpr int kExperts = 6;

  RecorderOnADevice() {
    fake_cuda() = FakeCuda();
    for (int i = 0; i < kExperts; ++i)
      params_.push_back(
          module_.register_parameter("expert" + std::to_string(i), tensor().requires_grad_()));
    optimizer_ = std::make_unique<torch::optim::SGD>(params_, 0.1);
    (void)recorder_.attach(collectors::libtorch_source(module_, optimizer_.get()));
  }

  at::Tensor tensor() {
    const at::Device device(at::kCUDA, 0);
    return at::for_blob(values_.data(), {8})
        .options(at::TensorOptions().dtype(at::kFloat).device(device))
        .target_device(device)
        .make_tensor();
  }
  /// A step in which these experts have gradients.
  void step(const std::vector<int>& experts) {
    for (at::Tensor& param : params_) param.mutable_grad().reset();
    for (const int i : experts) params_[static_cast<std::size_t>(i)].mutable_grad() = tensor();
    recorder_.read_gradients(0, record::ReadAt::optimizer);
    (void)recorder_.finish(0);
  }
  static Options options() {
    Options options;
    options.weight_every = 0;
    options.update_sample = 0;
    return options;
  }

  alignas(16) std::array<float, 8> values_{};
  torch::nn::Module module_;
  std::vector<at::Tensor> params_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  Governor governor_{options()};
  StepRecorder recorder_{options(), true, governor_};
};

TEST_F(RecorderOnADevice, IsSetUpBeforeTheFirstStep) {
  const int allocations = fake_cuda().allocations;
  EXPECT_EQ(collectors::take_set_up_waits(), 1);
  step({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(fake_cuda().allocations, allocations);
  EXPECT_EQ(collectors::take_set_up_waits(), 0);
  EXPECT_EQ(fake_cuda().launches, 1);
}

TEST_F(RecorderOnADevice, WhatCannotBeSetUpWhileAStreamCapturesIsSetUpLater) {
  fake_cuda().capturing = {nullptr};
  torch::nn::Module other;
  torch::optim::SGD optimizer(
      std::vector{other.register_parameter("weight", tensor().requires_grad_())}, 0.1);
  (void)collectors::take_set_up_waits();
  const int index = recorder_.attach(collectors::libtorch_source(other, &optimizer));
  EXPECT_EQ(collectors::take_set_up_waits(), 0);
  fake_cuda().capturing = {};
  other.parameters()[0].mutable_grad() = tensor();
  recorder_.read_gradients(index, record::ReadAt::optimizer);
  EXPECT_EQ(collectors::take_set_up_waits(), 1);
}

TEST_F(RecorderOnADevice, ExpertsThatComeLaterTakeNoMemory) {
  step({2});
  const int allocations = fake_cuda().allocations;
  for (int expert = 0; expert < kExperts; ++expert) step({2, expert});
  EXPECT_EQ(fake_cuda().allocations, allocations);
  EXPECT_EQ(fake_cuda().launches, 1 + kExperts);
}

TEST_F(RecorderOnADevice, NewUserMetricsTakeNoMemory) {
  step({0, 1});
  const int allocations = fake_cuda().allocations;
  for (int name = 0; name < 10; ++name) {
    recorder_.log("metric" + std::to_string(name), 1.0);
    step({0, 1});
  }
  EXPECT_EQ(fake_cuda().allocations, allocations);
  EXPECT_EQ(fake_cuda().launches, 11);
}

TEST_F(RecorderOnADevice, AnotherOptimizerThatComesAndGoesTakesNoneOfTheFirstOnes) {
  step({0, 1});
  int allocations = fake_cuda().allocations;
  torch::nn::Module other;
  const at::Tensor param = other.register_parameter("weight", tensor().requires_grad_());
  for (int turn = 0; turn < 5; ++turn) {
    if (turn == 1)
      allocations = fake_cuda().allocations;  // the other one's own, which comes back to it
    torch::optim::SGD optimizer(std::vector{param}, 0.1);
    const int index = recorder_.attach(collectors::libtorch_source(other, &optimizer));
    step({0, 1});
    recorder_.detach(index);
    step({0, 1});
  }
  EXPECT_EQ(fake_cuda().allocations, allocations);
}

TEST_F(RecorderOnADevice, TheModelHasTheDevicesUuidAsNvmlWritesIt) {
  step({0});
  const auto model = recorder_.handoff().newest_model();
  ASSERT_EQ(model->devices.size(), 1u);
  EXPECT_EQ(model->devices[0],
            (record::DeviceInfo{.device = "cuda:0",
                                .uuid = "GPU-0f1f2f3f-4f5f-6f7f-8f9f-afbfcfdfefff",
                                .name = "Fake GPU"}));
}

TEST_F(RecorderOnADevice, ADeviceThatTheRuntimeDoesNotKnowIsLeftOut) {
  fake_cuda().devices = 0;
  EXPECT_EQ(collectors::device_info(0), std::nullopt);
  EXPECT_EQ(fake_cuda().last_error, cudaSuccess) << "it is not the program's error";
}

/// Two parameters of two elements each, on the device, and a policy that acts on bad steps.
class PolicyOnADevice : public testing::Test {
 protected:
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

  PolicyOnADevice() {
    fake_cuda() = FakeCuda();
    for (auto& weights : weights_)
      params_.push_back(module_.register_parameter("weight" + std::to_string(params_.size()),
                                                   on_device(weights).requires_grad_()));
    optimizer_ = std::make_unique<torch::optim::SGD>(params_, 0.1);
  }

  template <std::size_t N>
  static at::Tensor on_device(std::array<float, N>& values) {
    const at::Device device(at::kCUDA, 0);
    return at::for_blob(values.data(), {N})
        .options(at::TensorOptions().dtype(at::kFloat).device(device))
        .target_device(device)
        .make_tensor();
  }
  void begin(const Options& options) {
    governor_ = std::make_unique<Governor>(options);
    recorder_ = std::make_unique<StepRecorder>(options, true, *governor_);
    (void)recorder_->attach(collectors::libtorch_source(module_, optimizer_.get()));
  }
  static Options options(NonfinitePolicy policy = NonfinitePolicy::skip) {
    Options options;
    options.weight_every = 0;
    options.update_sample = 0;
    options.on_nonfinite = policy;
    return options;
  }
  /// The gradients of a step, as the optimizer would use them.
  void read(std::array<float, 2> first, std::array<float, 2> second) {
    gradients_ = {first, second};
    for (std::size_t i = 0; i < 2; ++i) params_[i].mutable_grad() = on_device(gradients_[i]);
    recorder_->read_gradients(0, record::ReadAt::optimizer);
  }
  Decision step(std::array<float, 2> first, std::array<float, 2> second) {
    read(first, second);
    const Decision decision = recorder_->judge(0);
    (void)recorder_->finish(0);
    return decision;
  }

  std::array<std::array<float, 2>, 2> weights_{};
  std::array<std::array<float, 2>, 2> gradients_{};
  std::array<float, 1> scalar_{};
  torch::nn::Module module_;
  std::vector<at::Tensor> params_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::unique_ptr<Governor> governor_;
  std::unique_ptr<StepRecorder> recorder_;
};

TEST_F(PolicyOnADevice, ABadGradientIsSkippedAndEachStepWaitsOnce) {
  begin(options());
  EXPECT_EQ(step({1, 2}, {3, 4}).verdict, Verdict::take);
  EXPECT_EQ(step({1, 2}, {3, kNan}).verdict, Verdict::skip);
  EXPECT_EQ(step({std::numeric_limits<float>::infinity(), 2}, {3, 4}).fault, Fault::gradient);
  EXPECT_EQ(step({1, 2}, {3, 4}).verdict, Verdict::take);
  EXPECT_EQ(fake_cuda().waits, 4);
}

TEST_F(PolicyOnADevice, ImmediateModeWaitsNoSecondTime) {
  Options immediate = options();
  immediate.mode = Mode::immediate;
  begin(immediate);
  EXPECT_EQ(step({1, 2}, {3, kNan}).verdict, Verdict::skip);
  EXPECT_EQ(fake_cuda().waits, 1);
}

TEST_F(PolicyOnADevice, WithoutAPolicyForBadStepsNothingWaits) {
  begin(options(NonfinitePolicy::watch));
  EXPECT_EQ(step({1, kNan}, {3, 4}).verdict, Verdict::take);
  Options divergence = options(NonfinitePolicy::watch);
  divergence.on_divergence = DivergencePolicy::stop;
  begin(divergence);
  EXPECT_EQ(step({1, kNan}, {3, 4}).verdict, Verdict::take);
  EXPECT_EQ(fake_cuda().waits, 0);
}

TEST_F(PolicyOnADevice, WhatAScalerWouldFindIsWhatItsOwnReadHasFound) {
  Options asked = options(NonfinitePolicy::watch);
  asked.found_inf_for_scaler = true;
  const auto found = [&](std::array<float, 2> first, record::ReadAt where) {
    gradients_ = {first, {3, 4}};
    for (std::size_t i = 0; i < 2; ++i) params_[i].mutable_grad() = on_device(gradients_[i]);
    recorder_->read_gradients(0, where);
    const auto finding = recorder_->found_for_scaler(0);
    (void)recorder_->finish(0);
    if (!finding || finding->on_host || finding->on_devices.size() != 1) return -1.0f;
    return *static_cast<const float*>(finding->on_devices[0].const_data_ptr());
  };
  constexpr auto kScaler = record::ReadAt::scaler;
  begin(asked);
  EXPECT_EQ(found({1, 2}, kScaler), 0.0f);
  EXPECT_EQ(found({1, kNan}, kScaler), 1.0f);
  EXPECT_EQ(found({1, kNan}, record::ReadAt::clip), -1.0f) << "it may have been clipped since";
  params_[1].set_requires_grad(false);
  EXPECT_EQ(found({1, 2}, kScaler), -1.0f) << "a scaler looks at frozen parameters too";
  params_[1].set_requires_grad(true);
  fake_cuda().capturing.insert(nullptr);
  EXPECT_EQ(found({1, 2}, kScaler), -1.0f) << "a graph's flags are its replays'";
  fake_cuda().capturing.clear();
  begin(options(NonfinitePolicy::watch));
  EXPECT_EQ(found({1, 2}, kScaler), -1.0f) << "it was not asked for";
  EXPECT_EQ(fake_cuda().waits, 0);
}

/// What the host does around the step of an optimizer that heeds what is found on the device.
class StepOnADevice : public PolicyOnADevice {
 protected:
  static Options options() {
    Options options = PolicyOnADevice::options();
    options.skip_on_device = true;
    return options;
  }
  /// Whether the step was left to the device. If it was, what is found there is 1 if `is_bad`.
  bool leave(std::array<float, 2> first, std::array<float, 2> second, bool is_bad = false) {
    read(first, second);
    return leave_what_was_read(is_bad);
  }
  bool leave_what_was_read(bool is_bad) {
    const bool is_left = recorder_->leave_to_device(0);
    EXPECT_EQ(recorder_->judge(0).verdict, is_bad && !is_left ? Verdict::skip : Verdict::take);
    const auto found = recorder_->found_on_devices(0);
    EXPECT_EQ(found.size(), is_left ? 1u : 0u);
    for (const at::Tensor& one : found) {
      EXPECT_EQ(one.scalar_type(), at::kFloat);
      EXPECT_EQ(one.dim(), 0);
      EXPECT_EQ(*static_cast<const float*>(one.const_data_ptr()), is_bad ? 1.0f : 0.0f);
    }
    if (is_left) recorder_->heeds_devices(0);
    recorder_->after_update(0);
    (void)recorder_->finish(0);
    return is_left;
  }
  /// Facts of the steps so far, the oldest first.
  std::vector<collectors::StepFacts> handed_over() {
    std::vector<collectors::StepFacts> all(1);
    while (recorder_->handoff().next(all.back()).found) all.emplace_back();
    all.pop_back();
    return all;
  }
};

TEST_F(StepOnADevice, NothingWaitsAndTheFlagIsWhatTheReadHasFound) {
  begin(options());
  EXPECT_TRUE(leave({1, 2}, {3, 4}));
  EXPECT_TRUE(leave({1, 2}, {3, kNan}, /*is_bad=*/true));
  EXPECT_TRUE(leave({1, 2}, {3, 4}));
  EXPECT_EQ(fake_cuda().waits, 0);
  for (const collectors::StepFacts& facts : handed_over()) EXPECT_GT(facts.left_to_device, 0);
}

TEST_F(StepOnADevice, BehindASkippedStepTheHostWaitsUntilOneIsGood) {
  begin(options());
  EXPECT_TRUE(leave({1, 2}, {3, kNan}, /*is_bad=*/true));
  governor_->note_device_outcome(0, handed_over()[0].left_to_device, 1, Fault::gradient);
  EXPECT_FALSE(leave({1, kNan}, {3, 4}, /*is_bad=*/true));
  EXPECT_FALSE(leave({1, 2}, {3, 4}));
  EXPECT_EQ(fake_cuda().waits, 2);
  EXPECT_TRUE(leave({1, 2}, {3, 4}));
  EXPECT_EQ(fake_cuda().waits, 2);
  EXPECT_EQ(governor_->status().skipped_steps, 2);
}

TEST_F(StepOnADevice, AnOptimizerThatDoesNotHeedItAfterAllHasTakenItsStep) {
  begin(options());
  read({1, 2}, {3, kNan});
  EXPECT_TRUE(recorder_->leave_to_device(0));
  (void)recorder_->judge(0);
  (void)recorder_->finish(0);
  EXPECT_EQ(handed_over()[0].left_to_device, 0);
}

TEST_F(StepOnADevice, WhereMoreThanTheFlagCountsTheHostWaits) {
  Options bound = options();
  bound.skip_norm = 100;
  begin(bound);
  EXPECT_FALSE(leave({1, 2}, {3, 4}));
  Options immediate = options();
  immediate.mode = Mode::immediate;
  begin(immediate);
  EXPECT_FALSE(leave({1, 2}, {3, 4}));
  Options one_of_two = options();
  one_of_two.world_size = 2;
  begin(one_of_two);
  EXPECT_FALSE(leave({1, 2}, {3, 4}));
  begin(options());
  scalar_ = {2};
  recorder_->note_scale(0, on_device(scalar_), /*is_scaled=*/true);
  EXPECT_FALSE(leave({1, 2}, {3, 4})) << "a scaler's steps are its own affair";
  begin(PolicyOnADevice::options());
  EXPECT_FALSE(leave({1, 2}, {3, 4})) << "it was not asked for";
  EXPECT_EQ(fake_cuda().waits, 5);
}

TEST_F(StepOnADevice, AFlagGoesIntoAGraphOnlyIfItsReadDid) {
  begin(options());
  EXPECT_TRUE(leave({1, 2}, {3, 4}));
  read({1, 2}, {3, 4});
  fake_cuda().capturing.insert(nullptr);
  EXPECT_FALSE(leave_what_was_read(false)) << "nothing in the graph would write it";
  EXPECT_TRUE(leave({1, 2}, {3, 4})) << "all of it is in the graph";
  read({1, 2}, {3, 4});
  fake_cuda().capturing.clear();
  EXPECT_FALSE(leave_what_was_read(false)) << "the graph writes it";
}

TEST_F(PolicyOnADevice, TheNormIsThatOfAllGradientsWithoutTheScalersFactor) {
  Options bound = options();
  bound.skip_norm = 5.5;
  begin(bound);
  EXPECT_EQ(step({1, 2}, {3, 4}).verdict, Verdict::take) << "the norm is the root of 30";
  EXPECT_EQ(step({1, 2}, {3, 5}).fault, Fault::norm) << "the root of 39";
  scalar_ = {2};
  recorder_->note_scale(0, on_device(scalar_), /*is_scaled=*/true);
  EXPECT_EQ(step({1, 2}, {3, 10}).verdict, Verdict::take) << "half the root of 114";
}

TEST_F(PolicyOnADevice, RanksThatAgreeAreToldOfIt) {
  Options two = options();
  two.world_size = 2;
  two.ranks = RankAgreement::agree;
  begin(two);
  read({1, 2}, {kNan, 4});
  const auto own = recorder_->tell(0, true);
  const std::string record(own.begin(), own.end());
  EXPECT_EQ(recorder_->judge_together(0, true, std::vector{record, record}).verdict, Verdict::skip);
  EXPECT_EQ(fake_cuda().waits, 1) << "it is known by then";
}

TEST_F(PolicyOnADevice, AStepThatIsCapturedIsTakenAndNothingWaits) {
  begin(options());
  EXPECT_EQ(step({1, 2}, {3, 4}).verdict, Verdict::take);
  fake_cuda().capturing.insert(nullptr);
  EXPECT_EQ(step({1, 2}, {3, kNan}).verdict, Verdict::take);
  EXPECT_EQ(fake_cuda().waits, 1);
}

}  // namespace
}  // namespace gradvane::agent
