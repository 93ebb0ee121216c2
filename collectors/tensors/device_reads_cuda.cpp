// A build with CUDA.
#include <utility>

#include "collectors/tensors/device_reads.hpp"
#include "collectors/tensors/one_device_cuda.hpp"
#include "kernels/device/cuda_handles.hpp"

namespace gradvane::collectors {

struct DeviceReads::State {
  std::vector<kernels::Site> sites;
  std::vector<ExpectedEntry> expected;
  int ring_slots = 0;
  std::uint64_t plan_id = 0;
  std::vector<std::unique_ptr<OneDevice>> devices;
  std::vector<OneDevice*> last;  ///< took part in the last read
  bool captured = false;         ///< the last read was to go into a graph
  bool all_read = true;          ///< nothing that was set was left out of it
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
    devices.push_back(std::make_unique<OneDevice>(device, sites, expected, ring_slots, plan_id));
    return *devices.back();
  }
};

DeviceReads::DeviceReads() : state_(std::make_unique<State>()) {}
DeviceReads::~DeviceReads() = default;

void DeviceReads::resize(std::vector<kernels::Site> sites, int ring_slots, std::uint64_t plan_id,
                         std::span<const Tensor> expected) {
  State& state = *state_;
  std::vector<ExpectedEntry> entries;
  entries.reserve(expected.size());
  for (const Tensor& tensor : expected) entries.push_back(expected_entry(tensor));
  state.plan_id = plan_id;
  if (sites == state.sites && ring_slots == state.ring_slots && entries == state.expected) {
    for (const auto& one : state.devices) one->belong_to(plan_id);
    return;
  }
  state.devices.clear();
  state.new_sources.clear();  // made ahead, and never read from
  state.last.clear();
  state.sites = std::move(sites);
  state.ring_slots = ring_slots;
  state.expected = std::move(entries);
  // Those that are known are there before the first entry is left out.
  for (const ExpectedEntry& entry : state.expected)
    if (entry.device >= 0) (void)state.at(entry.device);
}

void DeviceReads::make_ahead(std::span<const Tensor> last) noexcept try {
  std::vector<ExpectedEntry> entries;
  entries.reserve(last.size());
  for (const Tensor& tensor : last)
    entries.push_back(tensor.defined() ? expected_entry(tensor) : ExpectedEntry{});
  for (const auto& one : state_->devices) one->make_ahead(entries, state_->new_sources);
} catch (...) {  // no memory on the host
}

bool DeviceReads::takes(const Tensor& tensor) const noexcept {
  const int device = cuda_device_of(tensor);
  if (device < 0) return false;
  const OneDevice* one = state_->find(device);
  return one == nullptr || one->failure().empty();
}

EntryTag DeviceReads::set(std::size_t entry, const Tensor& tensor) noexcept try {
  return state_->at(cuda_device_of(tensor)).set(entry, tensor);
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
  state.all_read = true;
  for (const auto& one : state.devices) {
    const DeviceRead read = one->read(state.new_sources);
    state.captured |= one->captured();
    state.all_read &= one->all_read();
    if (!one->failure().empty() && state.failure.empty()) state.failure = one->failure();
    if (read.source == 0) continue;
    if (reads == out.size()) {
      state.all_read = false;
      continue;
    }
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
bool DeviceReads::all_read() const noexcept { return state_->all_read; }

std::vector<std::shared_ptr<const DeviceSource>> DeviceReads::take_new_sources() {
  return std::exchange(state_->new_sources, {});
}

Tensor DeviceReads::norm() const {
  return state_->last.size() == 1 ? state_->last.front()->norm() : Tensor();
}

std::vector<Tensor> DeviceReads::found_nonfinite() const {
  std::vector<Tensor> found;
  for (const OneDevice* one : state_->last) found.push_back(one->found_nonfinite());
  return found;
}

std::vector<Tensor> DeviceReads::nonfinite_gradients() const {
  std::vector<Tensor> found;
  for (const OneDevice* one : state_->last) found.push_back(one->nonfinite_gradients());
  return found;
}

bool DeviceReads::clip(std::size_t count, double max_norm) noexcept {
  State& state = *state_;
  const bool is_one = state.last.size() == 1;
  bool is_clipped = false;
  for (const auto& one : state.devices) {
    if (is_one && one.get() == state.last.front())
      is_clipped = one->clip(count, max_norm);
    else
      one->forget_what_was_set();
    if (!one->failure().empty() && state.failure.empty()) state.failure = one->failure();
  }
  return is_clipped;
}

void DeviceReads::note_use() noexcept {
  for (OneDevice* one : state_->last) one->note_use();
}

bool DeviceReads::is_capturing() const noexcept {
  return std::ranges::any_of(state_->last,
                             [](const OneDevice* one) { return one->is_capturing(); });
}

std::int32_t DeviceReads::copies() const noexcept {
  std::int32_t copies = 0;
  for (const OneDevice* one : state_->last) copies += one->copies();
  return copies;
}

const std::string& DeviceReads::failure() const noexcept { return state_->failure; }

std::int32_t take_set_up_waits() noexcept { return kernels::take_set_up_waits(); }

}  // namespace gradvane::collectors
