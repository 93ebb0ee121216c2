#include "collectors/tensors/one_device_cuda.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <utility>

namespace gradvane::collectors {
namespace {

/// An entry that is not read: the address stands for its tag, see CudaPass::enqueue.
void* absent(EntryTag tag) noexcept {
  return std::bit_cast<void*>(static_cast<std::uintptr_t>(tag));
}

/// Reads until the next attempt, where there was no memory.
constexpr int kPauseAfterNoMemory = 64;

/// Of a capture that the program broke, say: no fault of the device.
bool is_of_capture(cudaError_t error) noexcept {
  return error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorCapturedEvent;
}

/// The legacy stream cannot be asked while another one captures; that error is ours to take away.
bool captures(cudaStream_t stream) noexcept {
  const kernels::OwnErrors errors;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  return errors.settle(cudaStreamIsCapturing(stream, &capture)) == cudaSuccess &&
         capture != cudaStreamCaptureStatusNone;
}

std::uint64_t next_source() noexcept {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

OneDevice::OneDevice(int device, const std::vector<kernels::Site>& sites,
                     const std::vector<ExpectedEntry>& expected, int ring_slots,
                     std::uint64_t plan_id)
    : device_(device),
      ring_slots_(
          kernels::ResultRing::slots_for(ring_slots, static_cast<std::int64_t>(sites.size()))),
      plan_id_(plan_id),
      sites_(sites),
      expected_(expected),
      views_(sites.size()),
      layouts_(sites.size()),
      data_(sites.size(), absent(EntryTag::missing)) {
  expected_.resize(sites.size());
  // A frozen parameter has weights, but no gradient.
  for (std::size_t i = 0; i < sites.size(); ++i)
    if (expected_[i].device == device && (expected_[i].trains || sites[i] == kernels::Site::weight))
      layouts_[i] = expected_[i].layout;
}

void OneDevice::make_ahead(std::span<const ExpectedEntry> last,
                           std::vector<std::shared_ptr<const DeviceSource>>& new_sources) noexcept {
  const auto is_known = [](const EntryLayout& layout) { return layout.shape.numel > 0; };
  if (!made_.empty() || std::ranges::none_of(layouts_, is_known)) return;
  const std::size_t first = layouts_.size() - std::min(last.size(), layouts_.size());
  for (std::size_t i = first; i < layouts_.size(); ++i)
    if (last[i - first].device == device_) layouts_[i] = last[i - first].layout;
  // As Losses::device_sum() and a gradient scaler have them; where there is none, these are left out of each read.
  for (std::size_t i = 0; last.empty() && i < layouts_.size(); ++i) {
    if (sites_[i] == kernels::Site::loss) layouts_[i].shape = {1, kernels::DType::f64};
    if (sites_[i] == kernels::Site::scalar) layouts_[i].shape = {1, kernels::DType::f32};
  }
  captured_ = captures(static_cast<cudaStream_t>(current_stream(device_)));
  (void)prepare(new_sources);
  pause_ = 0;
}

EntryTag OneDevice::set(std::size_t entry, const Tensor& tensor) noexcept try {
  const TensorFacts facts = facts_of(tensor);
  TensorView view = view_of(tensor, facts);
  if (view.data == nullptr) return leave_out(entry, tag_of(view.readable));
  const kernels::TensorShape shape{view.numel, view.dtype};
  EntryLayout& layout = layouts_[entry];
  // A layout is compared only where there is one: most tensors are row-major.
  if (shape != layout.shape || !facts.is_row_major || !layout.order.strides.empty() ||
      layout.order.is_complex != facts.is_complex) {
    EntryLayout now{shape, memory_order_of(facts)};
    if (now != layout) {
      fits_ = false;
      layout = std::move(now);
    }
  }
  data_[entry] = const_cast<void*>(view.data);  // for clip()
  copies_set_ += view.readable == Readable::copied ? 1 : 0;
  views_[entry] = std::move(view);
  ++set_;
  return EntryTag::read;
} catch (...) {  // no memory for a layout
  return leave_out(entry, EntryTag::unsupported);
}

EntryTag OneDevice::leave_out(std::size_t entry, EntryTag tag) noexcept {
  data_[entry] = absent(tag);
  return tag;
}

DeviceRead OneDevice::read(std::vector<std::shared_ptr<const DeviceSource>>& new_sources) noexcept {
  DeviceRead result;
  captured_ = false;
  all_read_ = true;
  if (set_ > 0) {
    if (failure_.empty()) {
      stream_ = static_cast<cudaStream_t>(current_stream(device_));
      captured_ = captures(stream_);
      if (prepare(new_sources)) result = enqueue();
    }
    all_read_ = all_read_ && result.source != 0;
  }
  copies_ = copies_set_;
  forget_what_was_set();
  return result;
}

void OneDevice::forget_what_was_set() noexcept {
  copies_set_ = 0;
  set_ = 0;
  for (TensorView& view : views_) view.holder.reset();
  for (void*& address : data_) address = absent(EntryTag::missing);
}

/// Once some of it is enqueued, no one else may scale these gradients: the device is given up, and that is all.
bool OneDevice::clip(std::size_t count, double max_norm) noexcept {
  bool has_begun = false;
  if (set_ == count && copies_set_ == 0 && fits_ && !made_.empty() && failure_.empty()) {
    const cudaError_t error = [&] {
      const OthersRun others;
      const auto stream = static_cast<cudaStream_t>(current_stream(device_));
      return made_[used_].pass->clip(data_, max_norm, stream, has_begun);
    }();
    if (!is_of_capture(error)) (void)succeeded(error, "clipping");
  }
  forget_what_was_set();
  return has_begun;
}

bool OneDevice::wait() noexcept {
  if (!pending_ || captured_) return !captured_;
  pending_ = false;
  const cudaError_t error = [this] {
    const OthersRun others;
    return made_[used_].pass->wait(stream_);
  }();
  return !is_of_capture(error) && succeeded(error, "waiting for a read");
}

Tensor OneDevice::norm() const {
  return tensor_over(made_[used_].pass->gradient_norm(), std::nullopt, device_);
}

Tensor OneDevice::found_nonfinite() const {
  return tensor_over(made_[used_].pass->found_nonfinite(), device_);
}

Tensor OneDevice::nonfinite_gradients() const {
  return tensor_over(made_[used_].pass->nonfinite_gradients(), device_);
}

void OneDevice::note_use() noexcept {
  (void)made_[used_].pass->note_use(static_cast<cudaStream_t>(current_stream(device_)));
}

bool OneDevice::is_capturing() const noexcept {
  return captures(static_cast<cudaStream_t>(current_stream(device_)));
}

bool OneDevice::is_set(std::size_t entry) const noexcept {
  return std::bit_cast<std::uintptr_t>(data_[entry]) >= kernels::device::kAddressLimit;
}

/// What is not there this time fits anything.
bool OneDevice::fits(const Made& made) const noexcept {
  for (std::size_t i = 0; i < layouts_.size(); ++i)
    if (is_set(i) && layouts_[i] != made.layouts[i]) return false;
  return true;
}

void OneDevice::use(std::size_t made) {
  layouts_ = made_[made].layouts;
  used_ = made;
  fits_ = true;
}

bool OneDevice::use_one_that_fits() {
  for (std::size_t i = made_.size(); i-- > 0;) {
    if (!fits(made_[i])) continue;
    use(i);
    return true;
  }
  return false;
}

void OneDevice::leave_out_what_does_not_fit() {
  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    if (!is_set(i) || layouts_[i] == made_[used_].layouts[i]) continue;
    (void)leave_out(i, EntryTag::unsupported);
    all_read_ = false;
  }
  use(used_);
}

void OneDevice::make(std::vector<std::shared_ptr<const DeviceSource>>& new_sources) {
  // Once something was not as expected, what is frozen may be next.
  for (std::size_t i = 0; !made_.empty() && i < layouts_.size(); ++i)
    if (layouts_[i].shape.numel == 0 && expected_[i].device == device_)
      layouts_[i] = expected_[i].layout;
  std::vector<kernels::TensorShape> shapes;
  auto source = std::make_shared<DeviceSource>();
  for (const EntryLayout& layout : layouts_) {
    shapes.push_back(layout.shape);
    source->orders.push_back(layout.order);
  }
  auto pass = [&] {
    const OthersRun others;  // CUDA may wait for the device when it is asked for memory
    return std::make_shared<kernels::CudaPass>(device_, shapes, sites_, ring_slots_, plan_id_);
  }();
  source->id = next_source();
  source->device = device_;
  source->ring = {pass, &pass->ring()};
  made_.push_back({layouts_, std::move(pass), source->id, 0});
  new_sources.push_back(std::move(source));
  used_ = made_.size() - 1;
  fits_ = true;
}

/// False where there is no pass for what was set, and none can be made now.
bool OneDevice::prepare(std::vector<std::shared_ptr<const DeviceSource>>& new_sources) noexcept
    try {
  if (fits_ && !made_.empty()) return true;
  if (use_one_that_fits()) return true;
  if (captured_) return false;  // the next read that is not captured will
  if (made_.size() == kMostPasses) {
    leave_out_what_does_not_fit();
    return true;
  }
  if (pause_ > 0) {
    --pause_;
    return false;
  }
  make(new_sources);
  return true;
} catch (const kernels::CudaError& error) {
  if (is_of_capture(error.code())) return false;  // it ends, and the next read will
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

DeviceRead OneDevice::enqueue() noexcept {
  Made& made = made_[used_];
  made.pass->belong_to(plan_id_);
  const cudaError_t error = [&] {
    // A full queue waits for the device, and the device may wait for what another thread has yet to enqueue.
    const OthersRun others;
    return made.pass->enqueue({data_.data(), data_.size()}, ++made.token, stream_);
  }();
  if (is_of_capture(error) || !succeeded(error, "enqueueing a read")) return {};
  pending_ = true;
  return {made.source, made.token};
}

bool OneDevice::succeeded(cudaError_t error, const char* what) noexcept {
  if (error == cudaSuccess) return true;
  give_up(std::string(what) + ": " + cudaGetErrorString(error));
  return false;
}

void OneDevice::give_up(const std::string& why) noexcept try {
  failure_ = "CUDA device " + std::to_string(device_) + ": " + why;
} catch (...) {
  failure_ = "no memory";
}

}  // namespace gradvane::collectors
