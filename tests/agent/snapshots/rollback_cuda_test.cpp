// Snapshots and rollbacks of what a real device holds; device_test.cpp has a simulated one.
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <stdexcept>
#include <vector>

#include "tests/agent/on_cuda.hpp"
#include "tests/agent/snapshots/loop.hpp"

namespace gradvane {
namespace {

using namespace test;

constexpr std::int64_t kSpin = 20'000'000;  // cycles, some ten milliseconds

class RollbackOnCuda : public OnCuda {};

std::vector<at::Tensor> on_host(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> found;
  for (const at::Tensor& tensor : tensors) found.push_back(tensor.cpu());
  return found;
}

TEST_F(RollbackOnCuda, ATrainingGoesOnBitForBit) {
  for (const int every : {1, 3}) {
    std::vector<at::Tensor> expected;
    for (const bool breaks : {false, true}) {
      Loop loop(adamw, at::kCUDA);
      Agent agent(rolling_back(every));
      agent.attach(*loop.model, *loop.optimizer);
      for (int i = 0; i < 5; ++i) agent.step(*loop.optimizer, loop.backward(i));
      ASSERT_TRUE(agent.snapshot());
      if (breaks) {
        agent.step(*loop.optimizer, loop.backward(5, kNan));  // the policy goes back
        EXPECT_FALSE(agent.should_stop());
      }
      for (int i = 5; i < 10; ++i) agent.step(*loop.optimizer, loop.backward(i));
      const std::vector<at::Tensor> state = on_host(loop.everything());
      if (breaks)
        EXPECT_TRUE(same(state, expected)) << every;
      else
        expected = state;
    }
  }
}

TEST_F(RollbackOnCuda, SnapshotsThatOverlapTheTrainingAreThoseOfTheirStep) {
  Loop loop(adamw, at::kCUDA);
  Agent agent(rolling_back(1));
  agent.attach(*loop.model, *loop.optimizer);
  std::vector<std::vector<at::Tensor>> states;
  std::int64_t to = -1;
  agent.on_rollback([&](const Rollback& done) { to = done.to_step; });
  for (int i = 0; i < 60; ++i) {
    if (i % 7 == 0) at::cuda::sleep(kSpin);  // copies land late
    agent.step(*loop.optimizer, loop.backward(i));
    states.push_back(on_host(loop.everything()));
  }
  (void)agent.rollback("a test");
  ASSERT_GT(to, 1);
  EXPECT_TRUE(same(on_host(loop.everything()), states[static_cast<std::size_t>(to - 1)]));
}

TEST_F(RollbackOnCuda, AStreamThatIsNamedIsWaitedForAndOneThatIsNotWritesOverIt) {
  const auto second = c10::cuda::getStreamFromPool();
  for (const bool is_named : {true, false}) {
    Loop loop(adamw, at::kCUDA);
    Agent agent(quiet());
    agent.attach(*loop.model, *loop.optimizer);
    if (is_named) agent.writes_on(second.unwrap());
    agent.step(*loop.optimizer, loop.backward(0));
    ASSERT_TRUE(agent.snapshot());
    const auto good = on_host(loop.everything());
    at::Tensor weight = loop.model->parameters()[0];
    int spoiled = 0;
    for (int i = 0; i < (is_named ? 200 : 3); ++i) {
      {
        const c10::cuda::CUDAStreamGuard guard(second);
        const torch::NoGradGuard no_grad;
        at::cuda::sleep(kSpin / 10);
        (void)weight.fill_(7);
      }
      (void)agent.rollback("a test");
      torch::cuda::synchronize();
      spoiled += same(on_host(loop.everything()), good) ? 0 : 1;
    }
    EXPECT_EQ(spoiled > 0, !is_named) << "the control knows nothing of the stream";
  }
}

TEST_F(RollbackOnCuda, TheFallbackWaitsForTheWholeDevice) {
  const auto second = c10::cuda::getStreamFromPool();
  Loop loop(adamw, at::kCUDA);
  Options options = quiet();
  options.rollback_device_sync = true;
  Agent agent(options);
  agent.attach(*loop.model, *loop.optimizer);
  agent.step(*loop.optimizer, loop.backward(0));
  ASSERT_TRUE(agent.snapshot());
  const auto good = on_host(loop.everything());
  {
    const c10::cuda::CUDAStreamGuard guard(second);
    const torch::NoGradGuard no_grad;
    at::cuda::sleep(kSpin);
    (void)loop.model->parameters()[0].fill_(7);
  }
  (void)agent.rollback("a test");
  torch::cuda::synchronize();
  EXPECT_TRUE(same(on_host(loop.everything()), good));
}

}  // namespace
}  // namespace gradvane
