// V6: callbacks while a stream is captured, and whether a capture outlives what another thread asks of CUPTI.
#include <cuda_runtime_api.h>

#include <atomic>
#include <thread>

#include "bench/sync/delay.hpp"
#include "bench/sync/raw_cupti.hpp"

namespace gradvane::bench {
namespace {

/// Captures a few launches; what ending it said.
cudaError_t capture(cudaStream_t stream, const std::function<void()>& within) {
  cudaGraph_t graph = nullptr;
  const cudaError_t begun = cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  if (begun != cudaSuccess) return begun;
  for (int i = 0; i < 20; ++i) (void)enqueue_nothing(stream);
  within();
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  (void)cudaGetLastError();
  return ended;
}

/// What is refused in a capture, and how the callback says it.
void refuse(const char* name, cudaStream_t stream, const std::function<cudaError_t()>& call) {
  Listener listener;
  listener.hear_ledgers(true);
  cudaError_t said = cudaSuccess;
  const cudaError_t ended = capture(stream, [&] { said = call(); });
  const int at_exit = listener.seen.empty() ? -1 : listener.seen.back().result;
  say("V6", "%s: %s, %zu callbacks, at the last exit %d; the capture: %s", name,
      cudaGetErrorName(said), listener.seen.size(), at_exit, cudaGetErrorName(ended));
}

}  // namespace

void probe_capture(bool quick) {
  cudaStream_t stream = nullptr;
  void* device = nullptr;
  void* pinned = nullptr;
  void* made = nullptr;
  cudaEvent_t event = nullptr;
  (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  (void)cudaMalloc(&device, 4096);
  (void)cudaHostAlloc(&pinned, 4096, cudaHostAllocDefault);
  (void)cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  (void)enqueue_nothing(stream);
  (void)cudaDeviceSynchronize();

  refuse("cudaStreamSynchronize in a capture", stream,
         [&] { return cudaStreamSynchronize(stream); });
  refuse("cudaDeviceSynchronize in a capture", stream, [] { return cudaDeviceSynchronize(); });
  refuse("cudaEventQuery in a capture", stream, [&] { return cudaEventQuery(event); });
  refuse("cudaMemcpy in a capture", stream,
         [&] { return cudaMemcpy(device, pinned, 4, cudaMemcpyHostToDevice); });
  refuse("cudaMalloc in a capture", stream, [&] { return cudaMalloc(&made, 4096); });
  refuse("cudaMemcpyAsync d2h in a capture", stream,
         [&] { return cudaMemcpyAsync(pinned, device, 4, cudaMemcpyDeviceToHost, stream); });

  const int captures = quick ? 200 : 2000;
  std::atomic<int> rounds{0};
  std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      Listener listener;
      listener.hear_ledgers(true);
      std::uint32_t enabled = 0;
      for (int i = 0; i < 5; ++i)
        (void)RawCupti::instance().get_callback_state(&enabled, listener.handle(),
                                                      cupti::Domain::runtime, 165);
      listener.unsubscribe();
      // A callback may still be under way: what it writes to lives a while longer.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++rounds;
    }
  });
  int lost = 0;
  cudaError_t why = cudaSuccess;
  for (int i = 0; i < captures; ++i) {
    const cudaError_t ended = capture(stream, [] {});
    if (ended != cudaSuccess) why = ended;
    lost += ended != cudaSuccess;
  }
  other.request_stop();
  other.join();
  say("V6", "%d captures while another thread subscribed, enabled and left %d times: %d lost%s%s",
      captures, rounds.load(), lost, lost > 0 ? ", last by " : "",
      lost > 0 ? cudaGetErrorName(why) : "");
}

}  // namespace gradvane::bench
