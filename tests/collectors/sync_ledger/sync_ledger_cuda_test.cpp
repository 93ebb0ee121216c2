// The real CUPTI on a device: a program with a known number of each kind of call gives exactly that number.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cupti.h>
#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/collectors/sync_ledger/real_cupti.hpp"

// What a program compiled for streams of its threads calls.
// NOLINTNEXTLINE(readability-identifier-naming): CUDA's own
extern "C" cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream);

namespace gradvane::collectors {
namespace {

using kernels::test::Stream;
using record::SyncOrigin;
using record::SyncReason;
using record::SyncSource;
using testing::HasSubstr;
using testing::StartsWith;

class SyncLedgerOnCuda : public OnRealCupti {};

TEST_F(SyncLedgerOnCuda, AWaitForTheDeviceIsOne) {
  count();
  for (int i = 0; i < 3; ++i) ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(calls(), (Calls{{"device", 3}}));
}

TEST_F(SyncLedgerOnCuda, AWaitForAStreamIsOneWhicheverStreamItIs) {
  const Stream stream;
  count();
  for (const cudaStream_t each :
       {stream.get(), cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread})
    ASSERT_CUDA(cudaStreamSynchronize(each));
  ASSERT_CUDA(cudaStreamSynchronize_ptsz(nullptr));
  EXPECT_EQ(calls(), (Calls{{"stream", 5}}));
}

TEST_F(SyncLedgerOnCuda, AWaitForAnEventIsOneAndQueriesAreNone) {
  const Stream stream;
  cudaEvent_t event = nullptr;
  ASSERT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  count();
  ASSERT_CUDA(cudaEventRecord(event, stream.get()));
  for (int i = 0; i < 5; ++i) (void)cudaEventQuery(event);
  for (int i = 0; i < 3; ++i) (void)cudaStreamQuery(stream.get());
  ASSERT_CUDA(cudaEventSynchronize(event));
  ASSERT_CUDA(cudaEventSynchronize(event));
  ASSERT_CUDA(cudaStreamWaitEvent(stream.get(), event));  // waits on the device
  EXPECT_EQ(calls(), (Calls{{"event", 2}}));
  EXPECT_EQ(polls(), 8);
  ASSERT_CUDA(cudaEventDestroy(event));
}

TEST_F(SyncLedgerOnCuda, ABlockingCopyToOrFromTheHostIsOne) {
  count();
  ASSERT_CUDA(cudaMemcpy(on_device(), pageable(), 4096, cudaMemcpyHostToDevice));
  ASSERT_CUDA(cudaMemcpy(pageable(), on_device(), 4096, cudaMemcpyDeviceToHost));
  ASSERT_CUDA(cudaMemcpy(pinned(), on_device(), 4096, cudaMemcpyDeviceToHost));
  EXPECT_EQ(calls(), (Calls{{"memcpy", 3}}));
}

TEST_F(SyncLedgerOnCuda, ACopyThatStaysOnTheDeviceIsNone) {
  count();
  ASSERT_CUDA(cudaMemcpy(on_device_too(), on_device(), 4096, cudaMemcpyDeviceToDevice));
  ASSERT_CUDA(
      cudaMemcpyAsync(on_device_too(), on_device(), 4096, cudaMemcpyDeviceToDevice, nullptr));
  (void)cudaStreamQuery(nullptr);
  EXPECT_EQ(calls(), Calls{});
}

TEST_F(SyncLedgerOnCuda, AnAsynchronousCopyToTheHostAndTheWaitForItAreOneRead) {
  const Stream stream;
  count();
  (void)ledger_->set_scope("read");
  ASSERT_CUDA(cudaMemcpyAsync(pinned(), on_device(), 4096, cudaMemcpyDeviceToHost, stream.get()));
  ASSERT_CUDA(cudaStreamSynchronize(stream.get()));
  EXPECT_EQ(calls(), (Calls{{"d2h_read", 1}}));
}

TEST_F(SyncLedgerOnCuda, TheSameOnTwoStreamsIsAWaitAlone) {
  const Stream stream;
  const Stream other;
  count();
  (void)ledger_->set_scope("read");
  ASSERT_CUDA(cudaMemcpyAsync(pinned(), on_device(), 4096, cudaMemcpyDeviceToHost, stream.get()));
  ASSERT_CUDA(cudaStreamSynchronize(other.get()));
  EXPECT_EQ(calls(), (Calls{{"stream", 1}}));
}

TEST_F(SyncLedgerOnCuda, AnAsynchronousCopyOfPinnedMemoryWaitsForNothing) {
  const Stream stream;
  count();
  ASSERT_CUDA(bench::enqueue_delay(kLong, stream.get()));
  ASSERT_CUDA(cudaMemcpyAsync(pinned(), on_device(), kBytes, cudaMemcpyDeviceToHost, stream.get()));
  ASSERT_CUDA(cudaMemcpyAsync(on_device(), pinned(), kBytes, cudaMemcpyHostToDevice, stream.get()));
  (void)cudaStreamQuery(stream.get());
  EXPECT_EQ(calls(), Calls{});
  stream.finish();
}

TEST_F(SyncLedgerOnCuda, AnAsynchronousCopyToPageableMemoryThatBlockedIsASuspect) {
  const Stream stream;
  count();
  ASSERT_CUDA(bench::enqueue_delay(kLong, stream.get()));
  ASSERT_CUDA(
      cudaMemcpyAsync(pageable(), on_device(), kBytes, cudaMemcpyDeviceToHost, stream.get()));
  (void)cudaStreamQuery(stream.get());  // a copy is kept until the thread's next call
  EXPECT_EQ(calls(), (Calls{{"async_copy_blocked", 1}}));
  stream.finish();
}

TEST_F(SyncLedgerOnCuda, AnAsynchronousCopyFromPageableMemoryThatBlockedIsASuspect) {
  const Stream stream;
  count();
  ASSERT_CUDA(bench::enqueue_delay(kLong, stream.get()));
  ASSERT_CUDA(
      cudaMemcpyAsync(on_device(), pageable(), kBytes, cudaMemcpyHostToDevice, stream.get()));
  (void)cudaStreamQuery(stream.get());
  EXPECT_EQ(calls(), (Calls{{"async_copy_blocked", 1}}));
  stream.finish();
}

TEST_F(SyncLedgerOnCuda, AReleaseBehindALongKernelIsOneAndAFreeOneIsNone) {
  const Stream stream;
  void* idle = nullptr;
  void* busy = nullptr;
  ASSERT_CUDA(cudaMalloc(&idle, kBytes));
  ASSERT_CUDA(cudaMalloc(&busy, kBytes));
  count();
  ASSERT_CUDA(cudaFree(idle));
  EXPECT_EQ(calls(), Calls{});
  ASSERT_CUDA(bench::enqueue_delay(kLong, stream.get()));
  ASSERT_CUDA(cudaFree(busy));
  EXPECT_EQ(calls(), (Calls{{"alloc_free", 1}}));
}

/// A driver's function as of one of its versions, without a link to the driver.
template <typename Function>
Function driver_function(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found);
  EXPECT_TRUE(error == cudaSuccess && found == cudaDriverEntryPointSuccess) << name;
  return reinterpret_cast<Function>(function);
}

TEST_F(SyncLedgerOnCuda, CallsToTheDriverItselfAreCounted) {
  const Stream stream;
  const auto wait_for_stream =
      driver_function<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize", 12000);
  const auto wait_for_all = driver_function<PFN_cuCtxSynchronize_v2000>("cuCtxSynchronize", 12000);
  const auto wait_for_context =
      driver_function<PFN_cuCtxSynchronize_v13000>("cuCtxSynchronize", 13000);
  const auto current = driver_function<PFN_cuCtxGetCurrent_v4000>("cuCtxGetCurrent", 12000);
  ASSERT_TRUE(wait_for_stream && wait_for_all && wait_for_context && current);
  CUcontext context = nullptr;
  ASSERT_EQ(current(&context), CUDA_SUCCESS);
  count();
  ASSERT_EQ(wait_for_stream(stream.get()), CUDA_SUCCESS);
  ASSERT_EQ(wait_for_all(), CUDA_SUCCESS);
  ASSERT_EQ(wait_for_context(context), CUDA_SUCCESS);
  EXPECT_EQ(calls(), (Calls{{"device", 2}, {"stream", 1}}));
}

TEST_F(SyncLedgerOnCuda, OurOwnCallsAreBookedApart) {
  const Stream stream;
  count();
  {
    const OwnCalls own(ledger_);
    ASSERT_CUDA(cudaStreamSynchronize(stream.get()));
  }
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(calls(SyncOrigin::gradvane), (Calls{{"stream", 1}}));
  EXPECT_EQ(calls(SyncOrigin::training), (Calls{{"device", 1}}));
}

TEST_F(SyncLedgerOnCuda, EveryThreadsCallsAreCounted) {
  count();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      const Stream stream;
      for (int call = 0; call < 250; ++call) (void)cudaStreamSynchronize(stream.get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls(), (Calls{{"stream", 2000}}));
  EXPECT_EQ(ledger_->summary().dropped, decltype(record::SyncSummary::dropped){});
}

TEST_F(SyncLedgerOnCuda, AStepHasWhatBeganInItAndTheTimeItTook) {
  const Stream stream;
  count();
  const SyncMark begin = ledger_->end_step();
  ASSERT_CUDA(bench::enqueue_delay(kLong, stream.get()));
  ASSERT_CUDA(cudaStreamSynchronize(stream.get()));
  ASSERT_CUDA(cudaDeviceSynchronize());
  const SyncMark end = ledger_->end_step();
  ASSERT_CUDA(cudaDeviceSynchronize());  // of the next step
  record::StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(begin, end, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 2);
  EXPECT_GT(syncs.seconds[0], 0.5 * std::chrono::duration<double>(kLong).count());
  EXPECT_LT(syncs.seconds[0], 10.0);
}

TEST_F(SyncLedgerOnCuda, WithoutAScopeOrPythonTheCallersLibraryIsNamed) {
  count();
  ASSERT_CUDA(cudaDeviceSynchronize());
  const record::SyncSummary summary = ledger_->summary();
  ASSERT_EQ(summary.sites.size(), 1u);
  // A C library without a lookup that takes no lock leaves the thread alone.
  EXPECT_THAT(summary.sites[0].location,
              StartsWith(NativeStack::available() ? "sync_ledger_cuda_test!" : "thread "));
}

/// Another tool in this process.
class Rival {
 public:
  explicit Rival(const char* name) {
    CUpti_SubscriberParams params{};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = name;
    params.oldSubscriberName = owner_.data();
    params.oldSubscriberSize = owner_.size();
    result_ = cuptiSubscribe_v2(
        &handle_, [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}, nullptr,
        &params);
  }
  ~Rival() { leave(); }
  Rival(const Rival&) = delete;  // one subscription, one owner
  Rival& operator=(const Rival&) = delete;

  void leave() {
    if (result_ == CUPTI_SUCCESS) (void)cuptiUnsubscribe(handle_);
    result_ = CUPTI_ERROR_UNKNOWN;
  }
  [[nodiscard]] CUptiResult result() const { return result_; }
  [[nodiscard]] const char* owner() const { return owner_.data(); }

 private:
  CUpti_SubscriberHandle handle_ = nullptr;
  CUptiResult result_ = CUPTI_ERROR_UNKNOWN;
  std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN + 1> owner_{};
};

TEST_F(SyncLedgerOnCuda, WhoeverHasTheSubscriptionIsNamedAndItIsAskedForAgain) {
  Rival rival("Somebody");
  ASSERT_EQ(rival.result(), CUPTI_SUCCESS);
  ledger_->join({});
  EXPECT_EQ(ledger_->summary().source, SyncSource::none);
  EXPECT_EQ(ledger_->summary().reason, SyncReason::taken);
  EXPECT_THAT(ledger_->summary().detail, HasSubstr("Somebody"));
  rival.leave();
  pass(std::chrono::seconds(61));
  ledger_->look(true);
  EXPECT_EQ(ledger_->summary().source, SyncSource::cupti) << ledger_->summary().detail;
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(calls(), (Calls{{"device", 1}}));
}

TEST_F(SyncLedgerOnCuda, ARivalIsToldOurName) {
  count();
  const Rival rival("Somebody");
  EXPECT_EQ(rival.result(), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  EXPECT_THAT(rival.owner(), HasSubstr("Gradvane"));
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(calls(), (Calls{{"device", 1}})) << "and it takes nothing away";
}

}  // namespace
}  // namespace gradvane::collectors
