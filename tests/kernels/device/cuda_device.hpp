#pragma once
// What tests on a device share. Without a device they skip; where GRADVANE_GPU_TESTS_MUST_RUN is set,
// that is a failure.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/device/cuda_handles.hpp"
#include "tests/kernels/tensor_data.hpp"

#define ASSERT_CUDA(call) \
  ASSERT_EQ(cudaSuccess, (call)) << cudaGetErrorString(cudaPeekAtLastError())

namespace gradvane::kernels::test {

/// Why there is no device; empty: there is one.
inline std::string missing_device() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return {};
  (void)cudaGetLastError();
  return std::string("no CUDA device: ") + cudaGetErrorString(error);
}

inline bool device_tests_must_run() {
  const char* value = std::getenv("GRADVANE_GPU_TESTS_MUST_RUN");
  return value != nullptr && std::string(value) == "1";
}

class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = missing_device();
    if (missing.empty()) return;
    if (device_tests_must_run()) FAIL() << missing;
    GTEST_SKIP() << missing;
  }
};

/// A copy of a tensor on the device, as far off a 16-byte boundary as on the host.
class DeviceTensor {
 public:
  explicit DeviceTensor(const TensorData& tensor)
      : offset_(reinterpret_cast<std::uintptr_t>(tensor.data()) % 16),
        bytes_(static_cast<std::size_t>(tensor.numel() * size_in_bytes(tensor.dtype()))),
        memory_(offset_ + bytes_ + 1) {
    upload(tensor);
  }
  void upload(const TensorData& tensor) {
    check_cuda("cudaMemcpy",
               cudaMemcpy(memory_.data() + offset_, tensor.data(), bytes_, cudaMemcpyHostToDevice));
    // From pageable memory it may return before all of it is there, and other streams do not wait for it.
    check_cuda("cudaStreamSynchronize", cudaStreamSynchronize(nullptr));
  }
  [[nodiscard]] const void* data() const { return memory_.data() + offset_; }
  /// Of the elements, as they are once its stream is done.
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> copy(bytes_);
    check_cuda("cudaMemcpy", cudaMemcpy(copy.data(), data(), bytes_, cudaMemcpyDeviceToHost));
    return copy;
  }

 private:
  std::size_t offset_;
  std::size_t bytes_;
  DeviceMemory memory_;
};

class Stream {
 public:
  Stream() {
    check_cuda("cudaStreamCreate", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;  // destroys once
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void finish() const { check_cuda("cudaStreamSynchronize", cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace gradvane::kernels::test
