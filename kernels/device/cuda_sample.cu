#include <algorithm>
#include <memory>

#include "kernels/device/cuda_sample.hpp"
#include "kernels/element.hpp"
#include "kernels/sample_position.hpp"

namespace gradvane::kernels {
namespace {

constexpr int kThreads = 256;

struct SampleLaunch {
  const SamplePlace* places = nullptr;  ///< of data[0] and those after it
  double* kept = nullptr;
  double* differences = nullptr;
  bool keep = false;
  const void* data[device::kFewPointers] = {};
};

template <DType dtype>
__device__ double element_at(const void* data, std::int64_t index) {
  return value<dtype>(static_cast<const Bits<dtype>*>(data)[index]);
}

__device__ double element_at(const void* data, std::int64_t index, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return element_at<DType::f32>(data, index);
    case DType::f64:
      return element_at<DType::f64>(data, index);
    case DType::f16:
      return element_at<DType::f16>(data, index);
    case DType::bf16:
      break;
  }
  return element_at<DType::bf16>(data, index);
}

/// A block takes a tensor.
__global__ void sample_tensors(const __grid_constant__ SampleLaunch launch) {
  const SamplePlace place = launch.places[blockIdx.x];
  const void* data = launch.data[blockIdx.x];
  if (reinterpret_cast<std::uintptr_t>(data) < device::kAddressLimit) return;
  for (std::int64_t i = threadIdx.x; i < place.count; i += kThreads) {
    const std::int64_t at = sample_position(i, place.count, place.numel);
    const double now = element_at(data, at, place.dtype);
    const std::int64_t to = place.begin + i;
    if (launch.keep) {
      launch.kept[to] = now;
    } else {
      launch.differences[to] = now - launch.kept[to];
    }
  }
}

std::size_t elements_of(std::span<const SamplePlace> places) {
  std::int64_t elements = 0;
  for (const SamplePlace& place : places) elements = std::max(elements, place.begin + place.count);
  return static_cast<std::size_t>(elements);
}

std::size_t bytes_of(std::span<const SamplePlace> places) {
  return 2 * elements_of(places) * sizeof(double) + places.size_bytes();
}

}  // namespace

CudaSample::CudaSample(int device, std::span<const SamplePlace> places)
    : device_(device), tensors_(places.size()) {
  const DeviceSetUp place(device);
  cudaFuncAttributes attributes{};  // loads the kernel: not at its first launch
  check_cuda("cudaFuncGetAttributes", cudaFuncGetAttributes(&attributes, sample_tensors));
  memory_ = DeviceMemory(std::max<std::size_t>(bytes_of(places), sizeof(double)));
  kept_ = reinterpret_cast<double*>(memory_.data());
  differences_ = kept_ + elements_of(places);
  std::byte* tables = reinterpret_cast<std::byte*>(differences_ + elements_of(places));
  if (!places.empty()) copy_to_device(tables, std::as_bytes(places));
  places_ = reinterpret_cast<const SamplePlace*>(tables);
}

cudaError_t CudaSample::keep(std::span<const void* const> data, cudaStream_t stream) noexcept {
  return launch(data, true, stream);
}

cudaError_t CudaSample::difference(std::span<const void* const> data,
                                   cudaStream_t stream) noexcept {
  return launch(data, false, stream);
}

cudaError_t CudaSample::launch(std::span<const void* const> data, bool keep,
                               cudaStream_t stream) noexcept {
  const OwnErrors errors;
  const CurrentDevice current(device_);
  cudaError_t error = current.error();
  for (std::size_t first = 0; first < tensors_ && error == cudaSuccess;
       first += device::kFewPointers) {
    const std::size_t count = std::min(tensors_ - first, device::kFewPointers);
    SampleLaunch launch;
    launch.places = places_ + first;
    launch.kept = kept_;
    launch.differences = differences_;
    launch.keep = keep;
    std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(first), count, launch.data);
    void* arguments[] = {&launch};
    error =
        cudaLaunchKernel(reinterpret_cast<const void*>(&sample_tensors),
                         dim3(static_cast<unsigned>(count)), dim3(kThreads), arguments, 0, stream);
  }
  return errors.settle(error);
}

}  // namespace gradvane::kernels
