#include "tests/kernels/device/fake_cuda.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "kernels/device/block_program.hpp"
#include "kernels/device/cuda_scale.hpp"
#include "tests/kernels/device/driven_pass.hpp"

// Torch's libraries look for these names too, and must find these functions.
#pragma GCC visibility push(default)

using gradvane::kernels::test::fake_cuda;

namespace gradvane::kernels::test {
namespace {

struct FakeEvent {
  bool is_done = true;
};

FakeEvent* event_of(cudaEvent_t event) { return reinterpret_cast<FakeEvent*>(event); }

cudaError_t outcome(cudaError_t error) {
  if (error != cudaSuccess) fake_cuda().last_error = error;
  return error;
}

cudaError_t allocate(void** to, std::size_t bytes) {
  if (!fake_cuda().has_memory) return outcome(cudaErrorMemoryAllocation);
  ++fake_cuda().allocations;
  *to = ::operator new(bytes, std::align_val_t{256});
  std::memset(*to, 0xcd, bytes);  // as it comes
  return cudaSuccess;
}

cudaError_t release(void* memory) {
  ++fake_cuda().frees;
  ::operator delete(memory, std::align_val_t{256});
  return cudaSuccess;
}

template <std::size_t kPointers>
void run(const void* kernel, const void* arguments, int grid) {
  using Launch = device::Launch<kPointers>;
  const Launch& launch = *static_cast<const Launch*>(arguments);
  const bool scales = kernel == device::scale_kernel(kPointers == device::kFewPointers);
  FiberBlock fibers(device::kThreads, FiberBlock::Order::forward);
  for (int block = 0; block < grid; ++block) {
    auto shared = std::make_unique<device::BlockMemory>();
    fibers.run([&](int thread) {
      FiberLane lane(fibers, thread, block, grid);
      if (scales)
        device::ScaleProgram<FiberLane, Launch>(lane, launch).run();
      else
        device::BlockProgram<FiberLane, Launch>(lane, launch, *shared).run();
    });
  }
}

/// Which of the two parameter blocks it is follows from the plan, with which both begin.
void run_kernel(const void* kernel, const void* arguments, int grid) {
  const auto& tables = *static_cast<const device::PassTables*>(arguments);
  const bool is_small = tables.plan.tensor_count <= std::int64_t{device::kFewPointers};
  is_small ? run<device::kFewPointers>(kernel, arguments, grid)
           : run<device::kManyPointers>(kernel, arguments, grid);
}

}  // namespace

FakeCuda& fake_cuda() {
  static FakeCuda fake;
  return fake;
}

}  // namespace gradvane::kernels::test

using namespace gradvane::kernels::test;

extern "C" {

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= fake_cuda().devices) return outcome(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(&properties->name[0], "Fake GPU");
  for (int i = 0; i < 16; ++i)
    properties->uuid.bytes[i] = static_cast<char>(device == 0 ? 0x0f + 16 * i : i);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = fake_cuda().devices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = fake_cuda().current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= fake_cuda().devices) return outcome(cudaErrorInvalidDevice);
  fake_cuda().made_current.push_back(device);
  fake_cuda().current = device;
  return cudaSuccess;
}
cudaError_t cudaPeekAtLastError() { return fake_cuda().last_error; }
cudaError_t cudaGetLastError() { return std::exchange(fake_cuda().last_error, cudaSuccess); }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 2;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -1;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int,
                                                          std::size_t) {
  *blocks = 1;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** to, std::size_t bytes) { return allocate(to, bytes); }
cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned) { return allocate(to, bytes); }
cudaError_t cudaFree(void* memory) { return release(memory); }
cudaError_t cudaFreeHost(void* memory) { return release(memory); }
cudaError_t cudaHostGetDevicePointer(void** to, void* host, unsigned) {
  *to = host;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  if (fake_cuda().set_up != cudaSuccess) return outcome(fake_cuda().set_up);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete reinterpret_cast<char*>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  if (fake_cuda().capture_query != cudaSuccess) return outcome(fake_cuda().capture_query);
  *status = fake_cuda().capturing.contains(stream) ? cudaStreamCaptureStatusActive
                                                   : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new FakeEvent);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event_of(event)->is_done = !fake_cuda().hangs;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return outcome(event_of(event)->is_done ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ++fake_cuda().waits;
  fake_cuda().endless_waits += !event_of(event)->is_done;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3, void** arguments, std::size_t,
                             cudaStream_t stream) {
  FakeCuda& fake = fake_cuda();
  if (!fake.launches_to_come.empty()) {
    const cudaError_t error = fake.launches_to_come.front();
    fake.launches_to_come.erase(fake.launches_to_come.begin());
    if (error != cudaSuccess) return outcome(error);
  }
  if (fake.capturing.contains(stream)) return cudaSuccess;  // nobody replays it here
  ++fake.launches;
  if (fake.runs_kernels) run_kernel(kernel, arguments[0], static_cast<int>(grid.x));
  return cudaSuccess;
}

}  // extern "C"
