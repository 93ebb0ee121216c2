// What a pass on a device takes, keeps and gives back, over a CUDA runtime that is not there.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/device/cuda_pass.hpp"
#include "tests/kernels/device/fake_cuda.hpp"

namespace gradvane::kernels::test {
namespace {

/// Each test uses models of a size of its own: what others gave back does not fit.
std::int64_t a_new_size() {
  static std::int64_t size = 1000;
  return size *= 2;
}

class CudaPassLife : public testing::Test {
 protected:
  void SetUp() override { fake_cuda() = FakeCuda(); }

  std::unique_ptr<CudaPass> make(std::int64_t tensors) {
    shapes_.assign(static_cast<std::size_t>(tensors), TensorShape{4, DType::f32});
    sites_.assign(shapes_.size(), Site::grad);
    data_.assign(shapes_.size(), values_);
    return std::make_unique<CudaPass>(0, shapes_, sites_, 2, 7);
  }
  SlotHeader newest(const CudaPass& pass) {
    SlotHeader header;
    std::vector<TensorStats> stats;
    EXPECT_EQ(RingReader(pass.ring()).read(pass.ring().latest(), header, stats), ReadStatus::ok);
    return header;
  }

  alignas(16) float values_[4] = {1, 2, 3, 4};
  std::vector<TensorShape> shapes_;
  std::vector<Site> sites_;
  std::vector<const void*> data_;
  cudaStream_t stream_ = nullptr;
  bool has_begun_ = false;  ///< of a clip
};

TEST_F(CudaPassLife, TellsOfTheWaitThatItsSetUpIsAndReadsHaveNone) {
  (void)take_set_up_waits();
  const std::unique_ptr<CudaPass> pass = make(2);
  EXPECT_EQ(take_set_up_waits(), 1);
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 1, stream_));
  EXPECT_EQ(take_set_up_waits(), 0);
}

TEST_F(CudaPassLife, ClipsBehindItsRead) {
  for (const std::int64_t tensors :
       {2, 600}) {  // with the small parameter block, and the large one
    const auto pass = make(tensors);
    std::vector<std::array<float, 4>> values(shapes_.size(), {1, 2, 3, 4});
    std::vector<void*> data;
    for (std::array<float, 4>& one : values) data.push_back(one.data());
    ASSERT_EQ(cudaSuccess, pass->enqueue({data.data(), data.size()}, 1, stream_));
    const double norm = std::sqrt(30.0 * static_cast<double>(tensors));
    ASSERT_EQ(cudaSuccess, pass->clip(data, 2 * norm, stream_, has_begun_));
    EXPECT_EQ(values.back()[3], 4);
    ASSERT_EQ(cudaSuccess, pass->clip(data, norm / 2, stream_, has_begun_));
    for (const std::array<float, 4>& one : values)
      for (int k = 0; k < 4; ++k)
        EXPECT_FLOAT_EQ(one[static_cast<std::size_t>(k)], static_cast<float>(k + 1) / 2);
    EXPECT_EQ(fake_cuda().waits, 0);
  }
}

TEST_F(CudaPassLife, SaysOfAClipThatFailedWhetherSomeOfItWasEnqueued) {
  const auto pass = make(5000);  // two launches
  std::vector<void*> data(data_.size(), values_);
  fake_cuda().launches_to_come = {cudaErrorLaunchFailure};
  EXPECT_NE(cudaSuccess, pass->clip(data, 1000, stream_, has_begun_));
  EXPECT_FALSE(has_begun_);
  fake_cuda().launches_to_come = {cudaSuccess, cudaErrorLaunchFailure};
  EXPECT_NE(cudaSuccess, pass->clip(data, 1000, stream_, has_begun_));
  EXPECT_TRUE(has_begun_);
}

TEST_F(CudaPassLife, DoesNotGetMemoryThatAClipStillReads) {
  auto pass = make(a_new_size());
  std::vector<void*> data(data_.size(), values_);
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 1, stream_));
  fake_cuda().hangs = true;
  ASSERT_EQ(cudaSuccess, pass->clip(data, 1000, stream_, has_begun_));
  const int allocations = fake_cuda().allocations;
  pass.reset();
  const auto next = std::make_unique<CudaPass>(0, shapes_, sites_, 2, 7);
  EXPECT_GT(fake_cuda().allocations, allocations);
}

TEST_F(CudaPassLife, GoesWithoutACallThatWaitsForADeviceThatHangs) {
  auto pass = make(2);
  fake_cuda().hangs = true;
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 1, stream_));
  const FakeCuda before = fake_cuda();
  pass.reset();
  EXPECT_EQ(fake_cuda().frees, 0);
  EXPECT_EQ(fake_cuda().waits, before.waits);
  EXPECT_EQ(fake_cuda().made_current, before.made_current) << "a context could be made there";
}

TEST_F(CudaPassLife, WaitsForItsReadAndNotForWhatComesAfterIt) {
  const auto pass = make(2);
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 1, stream_));
  fake_cuda().hangs = true;  // the update
  ASSERT_EQ(cudaSuccess, pass->wait(stream_));
  EXPECT_EQ(fake_cuda().waits, 1);
  EXPECT_EQ(fake_cuda().endless_waits, 0);
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 2, stream_));
  ASSERT_EQ(cudaSuccess, pass->wait(stream_));
  EXPECT_EQ(fake_cuda().endless_waits, 1) << "the control";
}

TEST_F(CudaPassLife, BehindAReadOfAGraphWaitsForTheStream) {
  const auto pass = make(2);
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 1, stream_));
  fake_cuda().capturing = {stream_};
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 2, stream_));
  EXPECT_EQ(pass->wait(stream_), cudaErrorStreamCaptureUnsupported);
  fake_cuda().capturing.clear();
  fake_cuda().hangs = true;  // the graph, replayed
  ASSERT_EQ(cudaSuccess, pass->wait(stream_));
  EXPECT_EQ(fake_cuda().endless_waits, 1) << "nothing else says when its read is done";
}

TEST_F(CudaPassLife, LeavesItsMemoryToTheNextPassOfItsSize) {
  const std::int64_t size = a_new_size();
  fake_cuda().runs_kernels = false;
  for (int agent = 0; agent < 20; ++agent) {
    const auto pass = make(size + agent);  // a little other, each time
    ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 1, stream_));
  }
  EXPECT_LE(fake_cuda().allocations, 4) << "a table and a ring for each of two size classes";
  EXPECT_EQ(fake_cuda().frees, 0);
}

TEST_F(CudaPassLife, BeginsAnewInMemoryThatWasUsedBefore) {
  const std::int64_t size = 3;
  (void)make(size)->enqueue(data_, 1, stream_);
  const auto pass = make(size);
  EXPECT_EQ(pass->ring().latest(), 0u);
  values_[1] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 5, stream_));
  const SlotHeader header = newest(*pass);
  EXPECT_EQ(header.sequence, 1u);
  EXPECT_EQ(header.token, 5u);
  EXPECT_EQ(header.totals.elements[static_cast<int>(Site::grad)][0], 3);
}

TEST_F(CudaPassLife, DoesNotGetMemoryThatAKernelStillWritesTo) {
  const std::int64_t size = a_new_size();
  fake_cuda().runs_kernels = false;
  auto pass = make(size);
  fake_cuda().hangs = true;
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 1, stream_));
  pass.reset();
  const int before = fake_cuda().allocations;
  const auto next = make(size);
  EXPECT_EQ(fake_cuda().allocations, before + 2);
  EXPECT_EQ(cudaSuccess, cudaPeekAtLastError()) << "that it is not ready is no error of anybody";
}

TEST_F(CudaPassLife, DoesNotGetMemoryThatAGraphMayWriteTo) {
  const std::int64_t size = a_new_size();
  fake_cuda().runs_kernels = false;
  auto pass = make(size);
  fake_cuda().capturing.insert(stream_);
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 1, stream_));
  fake_cuda().capturing.clear();
  pass.reset();
  const int before = fake_cuda().allocations;
  const auto next = make(size);
  EXPECT_EQ(fake_cuda().allocations, before + 2);
}

TEST_F(CudaPassLife, DoesNotGetMemoryOfAnotherDevice) {
  fake_cuda().devices = 2;
  const std::int64_t size = a_new_size();
  (void)make(size);
  const int before = fake_cuda().allocations;
  const CudaPass other(1, shapes_, sites_, 2, 7);
  EXPECT_EQ(fake_cuda().allocations, before + 2);
}

TEST_F(CudaPassLife, WithoutDeviceMemoryTakesNoOtherThatItWouldHaveToFree) {
  fake_cuda().has_memory = false;
  EXPECT_THROW((void)make(a_new_size()), CudaError);
  EXPECT_EQ(fake_cuda().frees, 0);
  EXPECT_EQ(cudaSuccess, cudaPeekAtLastError());
}

TEST_F(CudaPassLife, GoesInTheChildOfAForkToo) {
  auto pass = make(2);
  const pid_t child = fork();
  if (child == 0) {
    pass.reset();
    _exit(fake_cuda().frees == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CudaPassLife, AReadThatStoppedHalfWayIsNotCountedWithTheNextOne) {
  // Two launches: what a launch's parameters hold, and one more.
  const auto size = static_cast<std::int64_t>(device::kManyPointers) + 1;
  const auto pass = make(size);
  values_[2] = std::numeric_limits<float>::infinity();
  fake_cuda().launches_to_come = {cudaSuccess, cudaErrorStreamCaptureImplicit};
  EXPECT_EQ(cudaErrorStreamCaptureImplicit, pass->enqueue(data_, 1, stream_));
  EXPECT_EQ(pass->ring().latest(), 0u);
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 2, stream_));
  EXPECT_EQ(newest(*pass).totals.elements[static_cast<int>(Site::grad)][1], size);
}

TEST_F(CudaPassLife, MayBelongToAnotherPlanWithoutBeingMadeAgain) {
  const auto pass = make(2);
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 1, stream_));
  EXPECT_EQ(newest(*pass).plan_id, 7u);
  pass->belong_to(8);
  ASSERT_EQ(cudaSuccess, pass->enqueue(data_, 2, stream_));
  EXPECT_EQ(newest(*pass).plan_id, 8u);
  EXPECT_EQ(newest(*pass).sequence, 2u);
}

}  // namespace
}  // namespace gradvane::kernels::test
