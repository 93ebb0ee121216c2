#include <algorithm>
#include <cassert>

#include "kernels/device/cuda_pass.cuh"
#include "kernels/device/cuda_pass.hpp"
#include "kernels/device/cuda_scale.hpp"

namespace gradvane::kernels {
namespace {

using device::kFewPointers;
using device::kManyPointers;

template <std::size_t kPointers>
const void* kernel() noexcept {
  return reinterpret_cast<const void*>(&device::read_tensors<kPointers>);
}

/// Loads the kernel: loaded at its first launch, it could meet a capture. Returns how many of its blocks the
/// current device holds at once.
int load(int device, const void* kernel) {
  cudaFuncAttributes attributes{};
  check_cuda("cudaFuncGetAttributes", cudaFuncGetAttributes(&attributes, kernel));
  int multiprocessors = 0;
  check_cuda("cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  int each = 0;
  check_cuda("cudaOccupancyMaxActiveBlocksPerMultiprocessor",
             cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, device::kThreads, 0));
  return std::max(1, each) * multiprocessors;
}

}  // namespace

/// What is there before the memory is allocated.
struct CudaPass::Parts {
  DeviceSetUp place;
  device::PlanTables tables;
  Parts(int device, std::span<const TensorShape> shapes, std::span<const Site> sites)
      : place(device), tables(shapes, sites) {}
};

CudaPass::CudaPass(int device, std::span<const TensorShape> shapes, std::span<const Site> sites,
                   int ring_slots, std::uint64_t plan_id)
    : CudaPass(device, Parts(device, shapes, sites), ring_slots, plan_id) {}

CudaPass::CudaPass(int device, const Parts& parts, int ring_slots, std::uint64_t plan_id)
    : device_(device),
      room_(device, parts.tables.bytes(),
            ResultRing::bytes_needed(std::max(ring_slots, 2), parts.tables.tensors())),
      ring_(std::max(ring_slots, 2), parts.tables.tensors(), room_.ring()),
      tables_(parts.tables.at(room_.tables())) {
  copy_to_device(room_.tables(), parts.tables.image());
  tables_.ring = {room_.ring_on_device(), ring_.slots().slots(), ring_.slots().stride_bytes(),
                  ring_.max_tensors()};
  tables_.plan_id = plan_id;
  few_ = parts.tables.tensors() <= std::int64_t{kFewPointers};
  if (few_) {
    few_launch_ = std::make_unique<device::Launch<kFewPointers>>();
    launches_ = parts.tables.launches(kFewPointers);
  } else {
    many_launch_ = std::make_unique<device::Launch<kManyPointers>>();
    launches_ = parts.tables.launches(kManyPointers);
  }
  read_.function = few_ ? kernel<kFewPointers>() : kernel<kManyPointers>();
  scale_.function = device::scale_kernel(few_);
  for (Kernel* one : {&read_, &scale_}) one->resident_blocks = load(device, one->function);
}

CudaPass::~CudaPass() {
  if (in_a_graph_ || is_unmarked_) room_.keep_for_good();
}

cudaError_t CudaPass::enqueue(std::span<const void* const> data, std::uint64_t token,
                              cudaStream_t stream) noexcept {
  const OwnErrors errors;
  const CurrentDevice current(device_);
  cudaError_t error = current.error();
  bool ordered = false;
  if (error == cudaSuccess) error = begin(stream, ordered);
  if (error == cudaSuccess && is_torn_) {
    error = forget_half_a_read(stream);
    if (error == cudaSuccess) is_torn_ = !ordered;  // a graph does so when it is replayed
  }
  int launched = 0;
  if (error == cudaSuccess) {
    error = launch_all(read_, {.token = token}, data, stream, launched);
    is_torn_ |= error != cudaSuccess && launched > 0;
  }
  if (launched > 0) error = end(stream, ordered, error);
  return errors.settle(error);
}

cudaError_t CudaPass::clip(std::span<void* const> data, double max_norm, cudaStream_t stream,
                           bool& has_begun) noexcept {
  const OwnErrors errors;
  const CurrentDevice current(device_);
  cudaError_t error = current.error();
  bool ordered = false;
  if (error == cudaSuccess) error = begin(stream, ordered);
  int launched = 0;
  if (error == cudaSuccess) {
    error =
        launch_all(scale_, {.max_norm = max_norm}, {data.data(), data.size()}, stream, launched);
  }
  has_begun = launched > 0;
  if (launched > 0) error = end(stream, ordered, error);
  return errors.settle(error);
}

cudaError_t CudaPass::begin(cudaStream_t stream, bool& ordered) noexcept {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(stream, &capture);
  ordered = capture == cudaStreamCaptureStatusNone;
  if (error == cudaSuccess && ordered && has_last_ && stream != last_stream_)
    error = cudaStreamWaitEvent(stream, room_.last_use(), 0);
  return error;
}

cudaError_t CudaPass::end(cudaStream_t stream, bool ordered, cudaError_t error) noexcept {
  if (!ordered) {
    in_a_graph_ = true;
    return error;
  }
  const cudaError_t marked = cudaEventRecord(room_.last_use(), stream);
  is_unmarked_ |= marked != cudaSuccess;
  last_stream_ = stream;
  has_last_ = true;
  return error == cudaSuccess ? marked : error;
}

/// What the launches that were enqueued have counted would be counted again.
cudaError_t CudaPass::forget_half_a_read(cudaStream_t stream) noexcept {
  return cudaMemsetAsync(&tables_.state->read, 0, sizeof(ReadCounts), stream);
}

cudaError_t CudaPass::launch_all(const Kernel& kernel, const Call& call,
                                 std::span<const void* const> data, cudaStream_t stream,
                                 int& launched) noexcept {
  assert(static_cast<std::int64_t>(data.size()) == tables_.plan.tensor_count);
  return few_ ? launch_all(*few_launch_, kernel, call, data, stream, launched)
              : launch_all(*many_launch_, kernel, call, data, stream, launched);
}

template <std::size_t kPointers>
cudaError_t CudaPass::launch_all(device::Launch<kPointers>& launch, const Kernel& kernel,
                                 const Call& call, std::span<const void* const> data,
                                 cudaStream_t stream, int& launched) noexcept {
  launch.tables = tables_;
  launch.token = call.token;
  launch.max_norm = call.max_norm;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    const device::LaunchRange& range = launches_[i];
    launch.tensor_begin = range.tensor_begin;
    launch.tensor_end = range.tensor_end;
    launch.block_begin = range.block_begin;
    launch.block_end = range.block_end;
    launch.last = i + 1 == launches_.size();
    std::copy(data.begin() + range.tensor_begin, data.begin() + range.tensor_end, launch.data);
    const auto grid = std::clamp(range.block_end - range.block_begin, 1, kernel.resident_blocks);
    void* arguments[] = {&launch};  // copied by the call
    const cudaError_t error = cudaLaunchKernel(kernel.function, dim3(static_cast<unsigned>(grid)),
                                               dim3(device::kThreads), arguments, 0, stream);
    if (error != cudaSuccess) return error;
    ++launched;
  }
  return cudaSuccess;
}

cudaError_t CudaPass::wait(cudaStream_t stream) noexcept {
  const OwnErrors errors;
  const CurrentDevice current(device_);
  const RelaxedCapture relaxed;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t error = current.error();
  if (error == cudaSuccess) error = cudaStreamIsCapturing(stream, &capture);
  if (error == cudaSuccess && capture != cudaStreamCaptureStatusNone) {
    return cudaErrorStreamCaptureUnsupported;
  }
  // The event behind the reads, not a new one: what the stream was given since, above all the update, is not
  // waited for. Behind a read of a graph there is none.
  cudaEvent_t until = room_.last_use();
  if (error == cudaSuccess && (!has_last_ || in_a_graph_)) {
    until = room_.done();
    error = cudaEventRecord(until, stream);
  }
  if (error == cudaSuccess) error = cudaEventSynchronize(until);
  return errors.settle(error);
}

cudaError_t CudaPass::note_use(cudaStream_t stream) noexcept {
  const OwnErrors errors;
  const CurrentDevice current(device_);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t error = current.error();
  if (error == cudaSuccess) error = cudaStreamIsCapturing(stream, &capture);
  if (error == cudaSuccess && capture == cudaStreamCaptureStatusNone) {
    error = cudaEventRecord(room_.last_use(), stream);
    is_unmarked_ |= error != cudaSuccess;
  }
  return errors.settle(error);
}

const double* CudaPass::gradient_norm() const noexcept { return &tables_.state->gradient_norm; }

const float* CudaPass::found_nonfinite() const noexcept { return &tables_.state->found_nonfinite; }

const float* CudaPass::nonfinite_gradients() const noexcept {
  return &tables_.state->nonfinite_gradients;
}

}  // namespace gradvane::kernels
