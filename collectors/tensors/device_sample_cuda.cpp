// A build with CUDA.
#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "collectors/tensors/device_sample.hpp"
#include "collectors/tensors/update_sample.hpp"
#include "kernels/device/cuda_sample.hpp"

namespace gradvane::collectors {
namespace {

cudaStream_t stream_of(int device) { return static_cast<cudaStream_t>(current_stream(device)); }

/// What is to be sampled on one device: places by parameter, of count 0 for those elsewhere.
using Places = std::vector<kernels::SamplePlace>;

std::map<int, Places> places_of(std::span<const Tensor> params, std::int64_t per_param) {
  const auto count = static_cast<std::int64_t>(params.size());
  const std::int64_t fair =
      count == 0 ? 0 : std::max<std::int64_t>(1, UpdateSample::kMaxElements / count);
  std::map<int, Places> by_device;
  std::map<int, std::int64_t> used;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const int device = cuda_device_of(params[i]);
    if (device < 0 || !requires_grad(params[i])) continue;
    const TensorView view = sampled_view(params[i]);
    if (view.data == nullptr) continue;
    Places& places = by_device[device];
    places.resize(params.size());
    std::int64_t& begin = used[device];
    const std::int64_t most = std::min({per_param, fair, view.numel});
    places[i] = {begin, std::min(most, UpdateSample::kMaxElements - begin), view.numel, view.dtype};
    begin += places[i].count;
  }
  return by_device;
}

class SampledDevice {
 public:
  SampledDevice(int device, Places places)
      : device_(device),
        places_(std::move(places)),
        sample_(device, places_),
        data_(places_.size(), nullptr),
        kept_(places_.size(), false),
        changes_(places_.size()) {}

  void keep(std::span<const Tensor> params) noexcept {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      data_[i] = address_of(params, i);
      kept_[i] = data_[i] != nullptr;
    }
    cudaStream_t stream = stream_of(device_);
    const OthersRun others;  // as where a read is enqueued
    if (sample_.keep(data_, stream) != cudaSuccess) forget();
  }

  void difference(std::span<const Tensor> params) noexcept {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      data_[i] = kept_[i] ? address_of(params, i) : nullptr;
      kept_[i] = data_[i] != nullptr;
    }
    cudaStream_t stream = stream_of(device_);
    const OthersRun others;
    if (sample_.difference(data_, stream) != cudaSuccess) forget();
  }

  /// Its memory stays where it is, so each tensor is made once: torch may ask the driver where memory lies.
  [[nodiscard]] Tensor room_for_changes(std::size_t i) {
    if (i >= places_.size() || places_[i].count == 0) return {};
    if (!changes_[i].defined()) {
      changes_[i] =
          tensor_over(sample_.differences() + places_[i].begin, places_[i].count, device_);
    }
    return changes_[i];
  }
  [[nodiscard]] bool is_kept(std::size_t i) const { return i < kept_.size() && kept_[i]; }

 private:
  [[nodiscard]] const void* address_of(std::span<const Tensor> params,
                                       std::size_t i) const noexcept {
    const kernels::SamplePlace& place = places_[i];
    if (place.count == 0 || i >= params.size() || cuda_device_of(params[i]) != device_)
      return nullptr;
    const TensorView view = sampled_view(params[i]);
    return view.numel == place.numel && view.dtype == place.dtype ? view.data : nullptr;
  }
  void forget() noexcept { std::fill(kept_.begin(), kept_.end(), false); }

  int device_;
  Places places_;
  kernels::CudaSample sample_;
  std::vector<const void*> data_;
  std::vector<bool> kept_;
  std::vector<Tensor> changes_;
};

}  // namespace

struct DeviceSample::State {
  State() = default;
  State(const State&) = delete;  // devices hold its addresses
  State& operator=(const State&) = delete;
  ~State() {
    // A step may have been captured with it: see DeviceReads. It is small.
    std::move(devices.begin(), devices.end(), std::back_inserter(retired));
    if (!retired.empty()) (void)new auto(std::move(retired));
  }

  std::vector<std::unique_ptr<SampledDevice>> devices;
  std::vector<std::unique_ptr<SampledDevice>> retired;  ///< a captured graph may still write there
};

DeviceSample::DeviceSample() : state_(std::make_unique<State>()) {}
DeviceSample::~DeviceSample() = default;

void DeviceSample::resize(std::span<const Tensor> params, std::int64_t per_param) {
  for (auto& one : state_->devices) state_->retired.push_back(std::move(one));
  state_->devices.clear();
  if (per_param <= 0) return;
  for (auto& [device, places] : places_of(params, per_param)) {
    try {
      const OthersRun others;  // CUDA may wait for the device when it is asked for memory
      state_->devices.push_back(std::make_unique<SampledDevice>(device, std::move(places)));
    } catch (const kernels::CudaError&) {  // no memory there: the update ratio stays unmeasured
    }
  }
}

void DeviceSample::keep(std::span<const Tensor> params) noexcept {
  for (const auto& one : state_->devices) one->keep(params);
}

void DeviceSample::difference(std::span<const Tensor> params) noexcept {
  for (const auto& one : state_->devices) one->difference(params);
}

Tensor DeviceSample::changes(std::size_t i) const noexcept try {
  for (const auto& one : state_->devices)
    if (one->is_kept(i)) return one->room_for_changes(i);
  return {};
} catch (...) {  // no memory for a tensor's head
  return {};
}

Tensor DeviceSample::room_for_changes(std::size_t i) const noexcept try {
  for (const auto& one : state_->devices)
    if (Tensor room = one->room_for_changes(i); room.defined()) return room;
  return {};
} catch (...) {  // as above
  return {};
}

}  // namespace gradvane::collectors
