#pragma once
// Move-only owners of what a CUDA runtime hands out. Set-up throws CudaError; letting go never does: at
// the end of a process the driver may be gone already, and then there is nothing to free.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace gradvane::kernels {

class CudaError : public std::runtime_error {
 public:
  CudaError(const char* what, cudaError_t code);
  [[nodiscard]] cudaError_t code() const noexcept { return code_; }

 private:
  cudaError_t code_;
};

/// Throws CudaError unless `code` is success, and takes the error away: it is ours, not the program's.
void check_cuda(const char* what, cudaError_t code);

/// Makes a device current, and the one that was before again at the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) noexcept;
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;  // restores once
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  [[nodiscard]] cudaError_t error() const noexcept { return error_; }

 private:
  int before_ = -1;
  cudaError_t error_ = cudaSuccess;
};

/// While it lives, this thread may allocate although another one captures a graph.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept;
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;  // restores once
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// The place of a set-up: on the device, and not in the way of another thread's capture. Throws CudaError.
class DeviceSetUp {
 public:
  explicit DeviceSetUp(int device);

 private:
  CurrentDevice current_;
  RelaxedCapture relaxed_;
};

/// Made before calls whose errors are ours. An error that was there already is the program's, and stays
/// for it to find.
class OwnErrors {
 public:
  OwnErrors() noexcept : before_(cudaPeekAtLastError()) {}
  /// Takes `error` away again where it is ours; returns it.
  [[nodiscard]] cudaError_t settle(cudaError_t error) const noexcept {
    if (error != cudaSuccess && before_ == cudaSuccess) (void)cudaGetLastError();
    return error;
  }

 private:
  cudaError_t before_;
};

/// Memory of the current device, as it comes. Freeing it waits for the device: not while a run trains.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes);
  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

/// Copies to the current device and waits for the copy, not for what else the device does.
void copy_to_device(std::byte* to, std::span<const std::byte> from);

/// How many such waits the process had since it was last asked. Any thread.
[[nodiscard]] std::int32_t take_set_up_waits() noexcept;

/// Page-locked host memory that every device can write.
class MappedMemory {
 public:
  explicit MappedMemory(std::size_t bytes);
  [[nodiscard]] std::span<std::byte> host() const noexcept { return {memory_.get(), bytes_}; }
  [[nodiscard]] std::byte* device() const noexcept { return device_; }  ///< the current device's

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::byte* device_ = nullptr;
  std::size_t bytes_;
};

/// An event without timing, of the current device.
class Event {
 public:
  Event();
  [[nodiscard]] cudaEvent_t get() const noexcept { return event_.get(); }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const noexcept;
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

}  // namespace gradvane::kernels
