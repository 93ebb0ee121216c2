// What the pass does to a training program's streams: nothing but run in them.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "kernels/device/cuda_pass.hpp"
#include "tests/kernels/device/cuda_device.hpp"
#include "tests/kernels/device/sync_counter.hpp"

namespace gradvane::kernels::test {
namespace {

/// cudaMemGetInfo is of the whole device: a driver or a desktop may move it a little.
constexpr std::size_t kMovedByOthers = 2 << 20;

class CudaStream : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    std::mt19937_64 random(41);
    for (const std::int64_t numel : {1, 300'000, 700}) {
      TensorData tensor(DType::bf16, numel);
      fill_normal(tensor, random, -4, 4);
      copies_.push_back(std::make_unique<DeviceTensor>(tensor));
      shapes_.push_back(tensor.shape());
      data_.push_back(copies_.back()->data());
    }
  }
  std::unique_ptr<CudaPass> make_pass(int slots = 64) {
    return std::make_unique<CudaPass>(0, shapes_, sites_, slots, 9);
  }

  std::vector<std::unique_ptr<DeviceTensor>> copies_;
  std::vector<TensorShape> shapes_;
  std::vector<Site> sites_{Site::loss, Site::grad, Site::grad};
  std::vector<const void*> data_;
};

TEST_F(CudaStream, LaggedReadsMakeTheHostWaitForNothing) {
  const auto pass = make_pass();
  const Stream stream;
  SyncCounter counter;
  for (std::uint64_t step = 1; step <= 100; ++step)
    ASSERT_CUDA(pass->enqueue(data_, step, stream.get()));
  EXPECT_EQ(counter.syncs(), 0);
  EXPECT_EQ(counter.allocations(), 0);
  EXPECT_EQ(counter.launches(), 100) << "the counter sees nothing";
  stream.finish();
  EXPECT_EQ(pass->ring().latest(), 100u);
}

TEST_F(CudaStream, ImmediateReadsMakeItWaitOnce) {
  const auto pass = make_pass();
  const Stream stream;
  SyncCounter counter;
  for (std::uint64_t step = 1; step <= 100; ++step) {
    ASSERT_CUDA(pass->enqueue(data_, step, stream.get()));
    ASSERT_CUDA(pass->wait(stream.get()));
    EXPECT_EQ(pass->ring().latest(), step);
  }
  EXPECT_EQ(counter.syncs(), 100);
  EXPECT_EQ(counter.allocations(), 0);
}

TEST_F(CudaStream, ReadsOnDifferentStreamsHappenOneAfterTheOther) {
  const auto pass = make_pass();
  const Stream streams[3];
  for (std::uint64_t step = 1; step <= 300; ++step)
    ASSERT_CUDA(pass->enqueue(data_, step, streams[step % 3].get()));
  for (const Stream& stream : streams) stream.finish();
  EXPECT_EQ(pass->ring().latest(), 300u);
  SlotHeader header;
  std::vector<TensorStats> first;
  std::vector<TensorStats> stats;
  const RingReader reader(pass->ring());
  ASSERT_EQ(reader.read(290, header, first), ReadStatus::ok);
  for (std::uint64_t sequence = 291; sequence <= 300; ++sequence) {
    ASSERT_EQ(reader.read(sequence, header, stats), ReadStatus::ok);
    EXPECT_EQ(header.token, sequence);
    for (std::size_t i = 0; i < stats.size(); ++i) EXPECT_TRUE(same_bits(stats[i], first[i]));
  }
}

TEST_F(CudaStream, AReplayedGraphKeepsCountingAndGivesTheSameBits) {
  const auto pass = make_pass();
  const Stream stream;
  ASSERT_CUDA(pass->enqueue(data_, 1, stream.get()));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
  ASSERT_CUDA(pass->enqueue(data_, 2, stream.get()));
  EXPECT_EQ(pass->wait(stream.get()), cudaErrorStreamCaptureUnsupported);
  ASSERT_CUDA(cudaStreamEndCapture(stream.get(), &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  for (int replay = 0; replay < 20; ++replay)
    ASSERT_CUDA(cudaGraphLaunch(executable, stream.get()));
  ASSERT_CUDA(pass->enqueue(data_, 3, stream.get()));
  stream.finish();

  EXPECT_EQ(pass->ring().latest(), 22u);
  RingReader reader(pass->ring());
  SlotHeader header;
  std::vector<TensorStats> first;
  std::vector<TensorStats> stats;
  ASSERT_EQ(reader.read_next(header, first).status, ReadStatus::ok);
  for (std::uint64_t sequence = 2; sequence <= 22; ++sequence) {
    ASSERT_EQ(reader.read_next(header, stats).status, ReadStatus::ok);
    EXPECT_EQ(header.sequence, sequence);
    EXPECT_EQ(header.token, sequence < 22 ? 2u : 3u);
    for (std::size_t i = 0; i < stats.size(); ++i) EXPECT_TRUE(same_bits(stats[i], first[i]));
  }
  (void)cudaGraphExecDestroy(executable);
  (void)cudaGraphDestroy(graph);
}

TEST_F(CudaStream, AThousandCapturesSucceedWhileAnotherThreadPollsTheRing) {
  const auto pass = make_pass();
  const Stream stream;
  std::atomic<std::uint64_t> taken{0};
  std::jthread worker([&](const std::stop_token& stop) {
    RingReader reader(pass->ring());
    SlotHeader header;
    std::vector<TensorStats> stats;
    while (!stop.stop_requested())
      if (reader.read_next(header, stats).status == ReadStatus::ok) ++taken;
  });
  for (std::uint64_t capture = 1; capture <= 1000; ++capture) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
    ASSERT_CUDA(pass->enqueue(data_, capture, stream.get()));
    ASSERT_CUDA(cudaStreamEndCapture(stream.get(), &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    ASSERT_CUDA(cudaGraphLaunch(executable, stream.get()));
    stream.finish();
    (void)cudaGraphExecDestroy(executable);
    (void)cudaGraphDestroy(graph);
  }
  EXPECT_EQ(pass->ring().latest(), 1000u);
  worker.request_stop();
  worker.join();
  EXPECT_GT(taken, 0u);
}

TEST_F(CudaStream, ABlockedReaderLosesTheOldestReadsAndNothingOfTheTotals) {
  const auto pass = make_pass(8);
  const Stream stream;
  for (std::uint64_t step = 1; step <= 1000; ++step)
    ASSERT_CUDA(pass->enqueue(data_, step, stream.get()));
  stream.finish();
  RingReader reader(pass->ring());
  SlotHeader header;
  std::vector<TensorStats> stats;
  std::uint64_t lost = 0;
  std::uint64_t read = 0;
  for (;;) {
    const ReadResult result = reader.read_next(header, stats);
    lost += result.lost;
    if (result.status != ReadStatus::ok) break;
    EXPECT_EQ(stats.size(), 3u);
    ++read;
  }
  EXPECT_EQ(read, 7u);
  EXPECT_EQ(lost, 993u);
}

TEST_F(CudaStream, DeviceMemoryStaysFlatOverTenThousandReads) {
  const auto pass = make_pass();
  const Stream stream;
  for (std::uint64_t step = 0; step < 2000; ++step)  // what the driver takes at first
    ASSERT_CUDA(pass->enqueue(data_, step, stream.get()));
  stream.finish();
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&before, &total));
  for (std::uint64_t step = 0; step < 10'000; ++step)
    ASSERT_CUDA(pass->enqueue(data_, step, stream.get()));
  stream.finish();
  ASSERT_CUDA(cudaMemGetInfo(&after, &total));
  EXPECT_LE(before, after + kMovedByOthers);
}

/// Keeps a stream busy until it is let go, at the latest when it goes.
class BusyStream {
 public:
  explicit BusyStream(cudaStream_t stream) {
    check_cuda("cudaLaunchHostFunc", cudaLaunchHostFunc(stream, &BusyStream::wait, &is_busy_));
  }
  ~BusyStream() { let_go(); }
  BusyStream(const BusyStream&) = delete;  // the stream holds its address
  BusyStream& operator=(const BusyStream&) = delete;
  void let_go() {
    is_busy_ = false;
    is_busy_.notify_all();
  }
  [[nodiscard]] bool is_busy() const { return is_busy_; }

 private:
  static void CUDART_CB wait(void* is_busy) {
    static_cast<std::atomic<bool>*>(is_busy)->wait(true);
  }
  std::atomic<bool> is_busy_ = true;
};

TEST_F(CudaStream, AnImmediateReadDoesNotWaitForWhatComesAfterIt) {
  const auto pass = make_pass();
  const Stream stream;
  ASSERT_CUDA(pass->enqueue(data_, 1, stream.get()));
  {
    BusyStream busy(stream.get());
    std::jthread rescue([&](const std::stop_token& stop) {  // a test that waits must end too
      for (int i = 0; i < 1000 && !stop.stop_requested(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      busy.let_go();
    });
    ASSERT_CUDA(pass->wait(stream.get()));
    EXPECT_TRUE(busy.is_busy()) << "it waited for what came after it";
    EXPECT_EQ(pass->ring().latest(), 1u);
    rescue.request_stop();
  }
  stream.finish();
}

TEST_F(CudaStream, APassGoesWhileTheDeviceIsBusyAndLeavesItsMemoryToTheNext) {
  auto pass = make_pass();
  const Stream stream;
  const Stream collective;
  ASSERT_CUDA(pass->enqueue(data_, 1, stream.get()));
  stream.finish();
  {
    BusyStream busy(collective.get());
    std::jthread rescue([&](const std::stop_token& stop) {  // a test that waits must end too
      for (int i = 0; i < 1000 && !stop.stop_requested(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      busy.let_go();
    });
    pass.reset();
    EXPECT_TRUE(busy.is_busy()) << "it waited for the device";
    rescue.request_stop();
  }
  collective.finish();
  const SyncCounter counter;
  pass = make_pass();
  EXPECT_EQ(counter.allocations(), 0);
  ASSERT_CUDA(pass->enqueue(data_, 1, stream.get()));
  stream.finish();
  EXPECT_EQ(pass->ring().latest(), 1u);
}

TEST_F(CudaStream, MemoryThatAKernelStillWritesToIsNotGivenToTheNextPass) {
  auto pass = make_pass();
  const Stream stream;
  const std::byte* ring = pass->ring().slots().memory().data();
  BusyStream busy(stream.get());
  ASSERT_CUDA(pass->enqueue(data_, 1, stream.get()));
  pass.reset();
  std::jthread rescue([&] {  // page-locked memory may have to wait for the device
    std::this_thread::sleep_for(std::chrono::seconds(1));
    busy.let_go();
  });
  const auto next = make_pass();
  EXPECT_NE(next->ring().slots().memory().data(), ring);
  rescue.join();
  stream.finish();
}

TEST_F(CudaStream, DeviceMemoryStaysFlatOverAHundredPassesOneAfterTheOther) {
  const Stream stream;
  (void)make_pass();
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&before, &total));
  for (int agent = 0; agent < 100; ++agent) {
    const auto pass = make_pass();
    ASSERT_CUDA(pass->enqueue(data_, 1, stream.get()));
    stream.finish();
  }
  ASSERT_CUDA(cudaMemGetInfo(&after, &total));
  EXPECT_LE(before, after + kMovedByOthers);
}

TEST_F(CudaStream, TheMemoryOfAPlanIsWithinItsBar) {
  const std::vector<TensorShape> shapes(10'000, TensorShape{100'000, DType::bf16});
  const std::vector<Site> sites(shapes.size(), Site::grad);
  const CudaPass pass(0, shapes, sites, 2, 1);
  EXPECT_LE(pass.device_bytes(), 128 * shapes.size() + (1 << 20));
}

TEST_F(CudaStream, AnErrorOfTheProgramStaysForTheProgram) {
  const auto pass = make_pass();
  const Stream stream;
  ASSERT_EQ(cudaErrorInvalidDevice, cudaSetDevice(9999));
  EXPECT_EQ(cudaSuccess, pass->enqueue(data_, 1, stream.get()));
  EXPECT_EQ(cudaErrorInvalidDevice, cudaGetLastError());
  EXPECT_EQ(cudaSuccess, cudaGetLastError());
  stream.finish();
}

TEST_F(CudaStream, AnErrorOfOursIsTakenAway) {
  EXPECT_THROW(CudaPass(9999, shapes_, sites_, 2, 1), CudaError);
  EXPECT_EQ(cudaSuccess, cudaPeekAtLastError());
}

}  // namespace
}  // namespace gradvane::kernels::test
