// The real CUPTI while streams are captured: nothing that the ledger does may end a capture, what CUDA
// refuses is no wait, and a replayed graph is no sync.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/collectors/sync_ledger/real_cupti.hpp"

namespace gradvane::collectors {
namespace {

using kernels::test::Stream;
using record::SyncOrigin;

class SyncLedgerInCapture : public OnRealCupti {
 protected:
  void TearDown() override {
    if (executable_ != nullptr) (void)cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
    OnRealCupti::TearDown();
  }
  void begin(const Stream& stream) {
    ASSERT_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
  }

  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

TEST_F(SyncLedgerInCapture, AWaitThatIsRefusedIsNoWait) {
  const Stream stream;
  count();
  const SyncMark before = ledger_->end_step();
  begin(stream);
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaErrorStreamCaptureUnsupported);
  (void)cudaGetLastError();
  const SyncMark after = ledger_->end_step();
  // That the program's own mistake ends the capture is CUDA's rule, with and without us.
  EXPECT_EQ(cudaStreamEndCapture(stream.get(), &graph_), cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();
  EXPECT_EQ(calls(), (Calls{{"rejected_in_capture", 1}}));
  record::StepSyncs syncs;
  ASSERT_TRUE(ledger_->step(before, after, syncs));
  EXPECT_EQ(syncs.count(SyncOrigin::training), 0);
  EXPECT_EQ(syncs.seconds[0], 0);
}

TEST_F(SyncLedgerInCapture, AStepThatEndsInACaptureLeavesItWholeAndItselfKnown) {
  const Stream stream;
  count();
  const SyncMark before = ledger_->end_step();
  begin(stream);
  const SyncMark after = ledger_->end_step();  // which asks the driver for a sign that CUPTI lives
  EXPECT_EQ(cudaStreamEndCapture(stream.get(), &graph_), cudaSuccess);
  record::StepSyncs syncs;
  EXPECT_TRUE(ledger_->step(before, after, syncs));
  EXPECT_EQ(ledger_->summary().detail, "");
}

// An H200 with driver 580 lets it pass while a stream that does not block captures.
TEST_F(SyncLedgerInCapture, ABlockingCopyIsAWaitWhereItPassesAndNoneWhereItIsRefused) {
  const Stream stream;
  count();
  begin(stream);
  const bool passes =
      cudaMemcpy(on_device(), pageable(), 4096, cudaMemcpyHostToDevice) == cudaSuccess;
  (void)cudaGetLastError();
  (void)cudaStreamEndCapture(stream.get(), &graph_);
  (void)cudaGetLastError();
  EXPECT_EQ(calls(), (Calls{{passes ? "memcpy" : "rejected_in_capture", 1}}));
}

TEST_F(SyncLedgerInCapture, AReplayedGraphIsNoSyncAndTheWaitBehindItIsOne) {
  const Stream stream;
  count();
  (void)ledger_->set_scope("capture");
  begin(stream);
  ASSERT_CUDA(bench::enqueue_delay(std::chrono::microseconds(500), stream.get()));
  ASSERT_CUDA(cudaMemcpyAsync(pinned(), on_device(), 4096, cudaMemcpyDeviceToHost, stream.get()));
  ASSERT_CUDA(cudaStreamEndCapture(stream.get(), &graph_));
  ASSERT_CUDA(cudaGraphInstantiate(&executable_, graph_, 0));
  (void)ledger_->set_scope("replay");
  for (int i = 0; i < 20; ++i) ASSERT_CUDA(cudaGraphLaunch(executable_, stream.get()));
  EXPECT_EQ(calls(), Calls{});
  ASSERT_CUDA(cudaStreamSynchronize(stream.get()));
  EXPECT_EQ(calls(), (Calls{{"stream", 1}}));
}

// The copy was captured, not made: there is nothing for the wait to belong to.
TEST_F(SyncLedgerInCapture, ACapturedCopyAndALaterWaitFromTheSamePlaceAreNoRead) {
  const Stream stream;
  count();
  (void)ledger_->set_scope("everything");
  begin(stream);
  ASSERT_CUDA(cudaMemcpyAsync(pinned(), on_device(), 4096, cudaMemcpyDeviceToHost, stream.get()));
  ASSERT_CUDA(cudaStreamEndCapture(stream.get(), &graph_));
  ASSERT_CUDA(cudaGraphInstantiate(&executable_, graph_, 0));
  ASSERT_CUDA(cudaGraphLaunch(executable_, stream.get()));
  ASSERT_CUDA(cudaStreamSynchronize(stream.get()));
  Calls seen = calls();
  EXPECT_EQ(seen["stream"] + seen["d2h_read"], 1);
}

TEST_F(SyncLedgerInCapture, NoCaptureEndsForWhatTheLedgerDoesInAnotherThread) {
  const Stream stream;
  std::atomic<int> rounds{0};
  std::jthread worker([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      ledger_->join({.threshold = kThreshold});
      for (int i = 0; i < 3; ++i) {
        ledger_->look(true);
        (void)ledger_->summary();
        std::this_thread::yield();
      }
      ledger_->leave();
      ++rounds;
    }
  });
  int captures = 0;
  for (; captures < 500 || rounds < 20; ++captures) {
    cudaGraph_t graph = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 20; ++i) ASSERT_CUDA(bench::enqueue_nothing(stream.get()));
    ASSERT_CUDA(cudaMemcpyAsync(pinned(), on_device(), 4096, cudaMemcpyDeviceToHost, stream.get()));
    ASSERT_CUDA(cudaStreamEndCapture(stream.get(), &graph)) << "capture " << captures;
    ASSERT_CUDA(cudaGraphDestroy(graph));
  }
  worker.request_stop();
  worker.join();
  EXPECT_GE(captures, 500);
}

}  // namespace
}  // namespace gradvane::collectors
