#include "kernels/device/cuda_handles.hpp"

#include <atomic>

namespace gradvane::kernels {

CudaError::CudaError(const char* what, cudaError_t code)
    : std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code)), code_(code) {}

void check_cuda(const char* what, cudaError_t code) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();
  throw CudaError(what, code);
}

CurrentDevice::CurrentDevice(int device) noexcept {
  int current = -1;
  error_ = cudaGetDevice(&current);
  if (error_ != cudaSuccess || current == device) return;
  error_ = cudaSetDevice(device);
  if (error_ == cudaSuccess) before_ = current;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) (void)cudaSetDevice(before_);
}

RelaxedCapture::RelaxedCapture() noexcept { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

RelaxedCapture::~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

DeviceSetUp::DeviceSetUp(int device) : current_(device) {
  check_cuda("cudaSetDevice", current_.error());
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  check_cuda("cudaMalloc", cudaMalloc(&memory, bytes));
  memory_.reset(static_cast<std::byte*>(memory));
}

namespace {
std::atomic<std::int32_t> set_up_waits{0};
}

std::int32_t take_set_up_waits() noexcept {
  return set_up_waits.exchange(0, std::memory_order_relaxed);
}

void copy_to_device(std::byte* to, std::span<const std::byte> from) {
  cudaStream_t stream = nullptr;
  check_cuda("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaError_t error = cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  set_up_waits.fetch_add(1, std::memory_order_relaxed);
  (void)cudaStreamDestroy(stream);
  check_cuda("cudaMemcpyAsync", error);
}

void DeviceMemory::Free::operator()(std::byte* memory) const noexcept {
  const RelaxedCapture relaxed;
  (void)cudaFree(memory);
}

MappedMemory::MappedMemory(std::size_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  check_cuda("cudaHostAlloc",
             cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
  memory_.reset(static_cast<std::byte*>(memory));
  void* device = nullptr;
  check_cuda("cudaHostGetDevicePointer", cudaHostGetDevicePointer(&device, memory, 0));
  device_ = static_cast<std::byte*>(device);
}

void MappedMemory::Free::operator()(std::byte* memory) const noexcept {
  const RelaxedCapture relaxed;
  (void)cudaFreeHost(memory);
}

Event::Event() {
  cudaEvent_t event = nullptr;
  check_cuda("cudaEventCreate", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  event_.reset(event);
}

void Event::Destroy::operator()(cudaEvent_t event) const noexcept { (void)cudaEventDestroy(event); }

}  // namespace gradvane::kernels
