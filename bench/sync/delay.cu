#include "bench/sync/delay.hpp"

namespace gradvane::bench {
namespace {

__device__ unsigned long long device_nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void delay(unsigned long long nanoseconds) {
  const unsigned long long begin = device_nanoseconds();
  while (device_nanoseconds() - begin < nanoseconds) {
  }
}

__global__ void nothing() {}

}  // namespace

cudaError_t enqueue_delay(std::chrono::microseconds time, cudaStream_t stream) noexcept {
  delay<<<1, 1, 0, stream>>>(1000ULL * static_cast<unsigned long long>(time.count()));
  return cudaGetLastError();
}

cudaError_t enqueue_nothing(cudaStream_t stream) noexcept {
  nothing<<<1, 1, 0, stream>>>();
  return cudaGetLastError();
}

}  // namespace gradvane::bench
