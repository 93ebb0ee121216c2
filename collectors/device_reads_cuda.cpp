// A build with CUDA.
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAStream.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <utility>

#include "collectors/device_reads.hpp"
#include "collectors/tensor_view.hpp"
#include "kernels/device/cuda_pass.hpp"

namespace gradvane::collectors {
namespace {

/// An entry that is not read: the address stands for its tag, see CudaPass::enqueue.
const void* absent(EntryTag tag) noexcept {
  return std::bit_cast<const void*>(static_cast<std::uintptr_t>(-static_cast<std::int64_t>(tag)));
}

/// Reads until the next attempt, where there was no memory.
constexpr int kPauseAfterNoMemory = 64;

/// Of a capture that the program broke, say: no fault of the device.
bool is_of_capture(cudaError_t error) noexcept {
  return error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorCapturedEvent;
}

std::uint64_t next_source() noexcept {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

/// The entries that lie on one device, and the pass that reads them.
class DeviceReads::OneDevice {
 public:
  OneDevice(int device, const std::vector<kernels::Site>& sites, int ring_slots,
            std::uint64_t plan_id)
      : device_(device),
        ring_slots_(
            kernels::ResultRing::slots_for(ring_slots, static_cast<std::int64_t>(sites.size()))),
        plan_id_(plan_id),
        sites_(sites),
        views_(sites.size()),
        shapes_(sites.size()),
        orders_(sites.size()),
        data_(sites.size(), absent(EntryTag::missing)) {}

  ~OneDevice() {
    // What a captured graph writes to must outlive the graph, and nobody says when that goes. In the
    // child of a fork there is no device to ask.
    if (in_a_graph_ || ::getpid() != maker_) (void)new auto(std::move(kept_));
  }
  OneDevice(const OneDevice&) = delete;  // devices hold its addresses
  OneDevice& operator=(const OneDevice&) = delete;

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }

  EntryTag set(std::size_t entry, const at::Tensor& tensor) noexcept try {
    TensorView view = view_of(tensor);
    if (view.data == nullptr) return leave_out(entry, tag_of(view.readable));
    const kernels::TensorShape shape{view.numel, view.dtype};
    // A layout is compared only where there is one: most tensors are row-major.
    if (shape != shapes_[entry] || !tensor.is_contiguous() || !orders_[entry].strides.empty() ||
        orders_[entry].is_complex != tensor.is_complex()) {
      MemoryOrder order = MemoryOrder::of(tensor);
      fits_ = fits_ && shape == shapes_[entry] && order == orders_[entry];
      shapes_[entry] = shape;
      orders_[entry] = std::move(order);
    }
    data_[entry] = view.data;
    copies_set_ += view.readable == Readable::copied ? 1 : 0;
    views_[entry] = std::move(view);
    ++set_;
    return EntryTag::read;
  } catch (...) {  // no memory for a layout
    return leave_out(entry, EntryTag::unsupported);
  }

  EntryTag leave_out(std::size_t entry, EntryTag tag) noexcept {
    data_[entry] = absent(tag);
    return tag;
  }

  /// A read of nothing has source 0.
  DeviceRead read(std::vector<std::shared_ptr<const DeviceSource>>& new_sources) noexcept {
    DeviceRead result;
    captured_ = false;
    if (set_ > 0 && failure_.empty()) {
      stream_ = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device_)).stream();
      cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
      captured_ = cudaStreamIsCapturing(stream_, &capture) == cudaSuccess &&
                  capture != cudaStreamCaptureStatusNone;
      if (prepare(new_sources)) result = enqueue();
    }
    copies_ = std::exchange(copies_set_, 0);
    set_ = 0;
    for (TensorView& view : views_) view.holder.reset();
    for (const void*& address : data_) address = absent(EntryTag::missing);
    return result;
  }

  bool wait() noexcept {
    if (!pending_ || captured_) return !captured_;
    pending_ = false;
    return succeeded(pass_->wait(stream_), "waiting for a read");
  }

  [[nodiscard]] bool captured() const noexcept { return captured_; }
  [[nodiscard]] std::int32_t copies() const noexcept { return copies_; }
  [[nodiscard]] bool has_pass() const noexcept { return pass_ != nullptr; }

  [[nodiscard]] at::Tensor norm() const {
    const auto options = at::TensorOptions()
                             .dtype(at::kDouble)
                             .device(at::kCUDA, static_cast<c10::DeviceIndex>(device_));
    return at::from_blob(const_cast<double*>(pass_->gradient_norm()), {}, options);
  }

 private:
  /// False where there is no pass for what was set, and none can be made now.
  bool prepare(std::vector<std::shared_ptr<const DeviceSource>>& new_sources) noexcept try {
    if (pass_ != nullptr && fits_) return true;
    if (captured_) return false;  // the next read that is not captured will
    if (pause_ > 0) {
      --pause_;
      return false;
    }
    auto pass =
        std::make_shared<kernels::CudaPass>(device_, shapes_, sites_, ring_slots_, plan_id_);
    auto source = std::make_shared<DeviceSource>();
    source->id = next_source();
    source->device = device_;
    source->ring = {pass, &pass->ring()};
    source->orders = orders_;
    kept_.push_back(pass);
    source_ = source->id;
    new_sources.push_back(std::move(source));
    pass_ = std::move(pass);
    token_ = 0;
    fits_ = true;
    return true;
  } catch (const kernels::CudaError& error) {
    if (error.code() == cudaErrorMemoryAllocation) {
      pause_ = kPauseAfterNoMemory;
    } else {
      give_up(error.what());
    }
    return false;
  } catch (const std::exception& error) {  // no memory on the host
    pause_ = kPauseAfterNoMemory;
    return false;
  }

  DeviceRead enqueue() noexcept {
    const cudaError_t error = pass_->enqueue(data_, ++token_, stream_);
    if (is_of_capture(error) || !succeeded(error, "enqueueing a read")) return {};
    pending_ = true;
    in_a_graph_ |= captured_;
    return {source_, token_};
  }

  bool succeeded(cudaError_t error, const char* what) noexcept {
    if (error == cudaSuccess) return true;
    give_up(std::string(what) + ": " + cudaGetErrorString(error));
    return false;
  }
  void give_up(const std::string& why) noexcept try {
    failure_ = "CUDA device " + std::to_string(device_) + ": " + why;
  } catch (...) {
    failure_ = "no memory";
  }

  int device_;
  int ring_slots_;
  std::uint64_t plan_id_;
  std::vector<kernels::Site> sites_;

  std::vector<TensorView> views_;
  std::vector<kernels::TensorShape> shapes_;  ///< what the pass was made for
  std::vector<MemoryOrder> orders_;
  std::vector<const void*> data_;
  bool fits_ = false;
  int set_ = 0;
  std::int32_t copies_set_ = 0;

  std::shared_ptr<kernels::CudaPass> pass_;
  std::vector<std::shared_ptr<kernels::CudaPass>> kept_;
  std::uint64_t source_ = 0;
  std::uint64_t token_ = 0;
  cudaStream_t stream_ = nullptr;
  bool captured_ = false;
  bool pending_ = false;
  std::int32_t copies_ = 0;
  std::string failure_;
  int pause_ = 0;
  bool in_a_graph_ = false;
  pid_t maker_ = ::getpid();
};

struct DeviceReads::State {
  std::vector<kernels::Site> sites;
  int ring_slots = 0;
  std::uint64_t plan_id = 0;
  std::vector<std::unique_ptr<OneDevice>> devices;
  std::vector<std::unique_ptr<OneDevice>> retired;  ///< of older plans
  std::vector<OneDevice*> last;                     ///< took part in the last read
  bool captured = false;                            ///< the last read was to go into a graph
  std::vector<std::shared_ptr<const DeviceSource>> new_sources;
  std::string failure;

  [[nodiscard]] OneDevice* find(int device) const noexcept {
    for (const auto& one : devices)
      if (one->device() == device) return one.get();
    return nullptr;
  }
  OneDevice& at(int device) {
    if (OneDevice* one = find(device)) return *one;
    last.reserve(devices.size() + 1);
    devices.push_back(std::make_unique<OneDevice>(device, sites, ring_slots, plan_id));
    return *devices.back();
  }
};

DeviceReads::DeviceReads() : state_(std::make_unique<State>()) {}
DeviceReads::~DeviceReads() = default;

void DeviceReads::resize(std::vector<kernels::Site> sites, int ring_slots, std::uint64_t plan_id) {
  State& state = *state_;
  for (auto& one : state.devices)
    if (one->has_pass()) state.retired.push_back(std::move(one));
  state.devices.clear();
  state.last.clear();
  state.sites = std::move(sites);
  state.ring_slots = ring_slots;
  state.plan_id = plan_id;
}

bool DeviceReads::takes(const at::Tensor& tensor) const noexcept {
  if (!tensor.defined() || !tensor.is_cuda()) return false;
  const OneDevice* one = state_->find(tensor.device().index());
  return one == nullptr || one->failure().empty();
}

EntryTag DeviceReads::set(std::size_t entry, const at::Tensor& tensor) noexcept try {
  return state_->at(tensor.device().index()).set(entry, tensor);
} catch (...) {  // no memory for a device's tables
  return EntryTag::unsupported;
}

void DeviceReads::leave_out(std::size_t entry, EntryTag tag) noexcept {
  for (const auto& one : state_->devices) (void)one->leave_out(entry, tag);
}

std::size_t DeviceReads::read(std::span<DeviceRead> out) noexcept {
  State& state = *state_;
  std::size_t reads = 0;
  state.last.clear();
  state.captured = false;
  for (const auto& one : state.devices) {
    const DeviceRead read = one->read(state.new_sources);
    state.captured |= one->captured();
    if (!one->failure().empty() && state.failure.empty()) state.failure = one->failure();
    if (read.source == 0 || reads == out.size()) continue;
    out[reads++] = read;
    state.last.push_back(one.get());
  }
  return reads;
}

bool DeviceReads::wait(std::uint64_t& waited) noexcept {
  bool done = true;
  for (OneDevice* one : state_->last) {
    const std::uint64_t bit = std::uint64_t{1} << one->device() % 64;
    if ((waited & bit) != 0) continue;
    waited |= bit;
    done = one->wait() && done;
    if (!one->failure().empty() && state_->failure.empty()) state_->failure = one->failure();
  }
  return done;
}

bool DeviceReads::captured() const noexcept { return state_->captured; }

std::vector<std::shared_ptr<const DeviceSource>> DeviceReads::take_new_sources() {
  return std::exchange(state_->new_sources, {});
}

at::Tensor DeviceReads::norm() const {
  return state_->last.size() == 1 ? state_->last.front()->norm() : at::Tensor();
}

std::int32_t DeviceReads::copies() const noexcept {
  std::int32_t copies = 0;
  for (const OneDevice* one : state_->last) copies += one->copies();
  return copies;
}

const std::string& DeviceReads::failure() const noexcept { return state_->failure; }

}  // namespace gradvane::collectors
