// Calls that only may wait. V5: whether the time between the callbacks of an asynchronous copy is the time
// that it blocked. V9: what releasing memory takes, idle and behind a kernel.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <bit>
#include <vector>

#include "bench/sync/delay.hpp"
#include "bench/sync/raw_cupti.hpp"

namespace gradvane::bench {
namespace {

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}

/// Of the only call that was heard.
double callback_milliseconds(const std::vector<Seen>& seen) {
  if (seen.size() < 2) return -1;
  return 1e-6 * static_cast<double>(seen.back().at - seen.front().at);
}

template <typename Function>
Function driver(const char* name) {
  const auto function = reinterpret_cast<Function>(driver_function(name));
  if (function == nullptr) say("V9", "the driver has no %s", name);
  return function;
}

/// Memory as PyTorch's expandable segments have it: reserved, made, mapped, and given back in that order.
void release_mapped(std::size_t bytes, cudaStream_t stream, bool is_busy) {
  const auto reserve = driver<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve");
  const auto make = driver<PFN_cuMemCreate_v10020>("cuMemCreate");
  const auto map = driver<PFN_cuMemMap_v10020>("cuMemMap");
  const auto allow = driver<PFN_cuMemSetAccess_v10020>("cuMemSetAccess");
  const auto unmap = driver<PFN_cuMemUnmap_v10020>("cuMemUnmap");
  const auto release = driver<PFN_cuMemRelease_v10020>("cuMemRelease");
  if (!reserve || !make || !map || !allow || !unmap || !release) return;
  CUmemAllocationProp what{};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccessDesc access{};
  access.location = what.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  double took[5] = {};
  (void)reserve(&address, bytes, 0, 0, 0);
  took[0] = milliseconds_of([&] { (void)make(&handle, bytes, &what, 0); });
  took[1] = milliseconds_of([&] { (void)map(address, bytes, 0, handle, 0); });
  CUresult result = CUDA_SUCCESS;
  took[2] = milliseconds_of([&] { result = allow(address, bytes, &access, 1); });
  if (result != CUDA_SUCCESS)
    return say("V9", "cuMemSetAccess: error %d", static_cast<int>(result));
  (void)cudaMemset(std::bit_cast<void*>(address), 0, 4096);
  (void)cudaDeviceSynchronize();
  if (is_busy) (void)enqueue_delay(kStall, stream);
  took[3] = milliseconds_of([&] { (void)unmap(address, bytes); });
  took[4] = milliseconds_of([&] { (void)release(handle); });
  say("V9",
      "%4zu MB %s: cuMemCreate %.3f ms, cuMemMap %.3f, cuMemSetAccess %.3f, cuMemUnmap %.3f, "
      "cuMemRelease %.3f",
      bytes >> 20, is_busy ? "released behind 20 ms" : "idle", took[0], took[1], took[2], took[3],
      took[4]);
  (void)cudaDeviceSynchronize();
}

}  // namespace

void probe_copies(bool quick) {
  constexpr std::size_t kMost = std::size_t{256} << 20;
  const cudaStream_t stream = new_stream();
  void* device = nullptr;
  void* pinned = nullptr;
  std::vector<std::byte> pageable(kMost);
  (void)cudaMalloc(&device, kMost);
  (void)cudaHostAlloc(&pinned, kMost, cudaHostAllocDefault);
  (void)enqueue_delay(std::chrono::microseconds(1), stream);
  Listener listener;
  listener.hear_ledgers(true);
  for (const bool to_host : {true, false}) {
    for (void* host : {static_cast<void*>(pageable.data()), pinned}) {
      for (const std::size_t bytes :
           {std::size_t{4}, std::size_t{32} << 10, std::size_t{64} << 10, std::size_t{128} << 10,
            std::size_t{1} << 20, std::size_t{64} << 20, kMost}) {
        if (quick && bytes == kMost) continue;
        const auto copy = [&] {
          (void)(to_host ? cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream)
                         : cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
        };
        copy();
        (void)cudaStreamSynchronize(stream);
        double host_time[2];
        double callback_time[2];
        for (const bool is_busy : {false, true}) {
          if (is_busy) (void)enqueue_delay(kStall, stream);
          listener.seen.clear();
          host_time[is_busy] = milliseconds_of(copy);
          callback_time[is_busy] = callback_milliseconds(listener.seen);
          (void)cudaStreamSynchronize(stream);
        }
        say("V5",
            "%s %s %9zu bytes: idle %.3f ms, callbacks %.3f; behind 20 ms %.3f ms, callbacks %.3f",
            to_host ? "d2h" : "h2d", host == pinned ? "pinned  " : "pageable", bytes, host_time[0],
            callback_time[0], host_time[1], callback_time[1]);
      }
    }
  }
}

void probe_releases(bool quick) {
  const cudaStream_t stream = new_stream();
  (void)enqueue_delay(std::chrono::microseconds(1), stream);
  (void)cudaDeviceSynchronize();
  for (const std::size_t megabytes : std::initializer_list<std::size_t>{1, 2, 64, 1024}) {
    const std::size_t bytes = megabytes << 20;
    if (quick && megabytes == 64) continue;
    for (const bool is_busy : {false, true}) {
      void* memory = nullptr;
      const double make = milliseconds_of([&] { (void)cudaMalloc(&memory, bytes); });
      (void)cudaDeviceSynchronize();
      if (is_busy) (void)enqueue_delay(kStall, stream);
      const double free = milliseconds_of([&] { (void)cudaFree(memory); });
      say("V9", "%4zu MB %s: cudaMalloc %.3f ms, cudaFree %.3f", bytes >> 20,
          is_busy ? "released behind 20 ms" : "idle", make, free);
      (void)cudaDeviceSynchronize();
    }
    if (megabytes < 2) continue;  // less than a page of the device
    for (const bool is_busy : {false, true}) release_mapped(bytes, stream, is_busy);
  }
}

}  // namespace gradvane::bench
