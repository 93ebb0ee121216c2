// A build without CUDA reads no device.
#include "collectors/tensors/device_identity.hpp"
#include "collectors/tensors/device_reads.hpp"
#include "collectors/tensors/device_sample.hpp"

namespace gradvane::collectors {

std::optional<record::DeviceInfo> device_info(int /*index*/) noexcept { return std::nullopt; }

struct DeviceReads::State {
  std::string failure;
};

DeviceReads::DeviceReads() : state_(std::make_unique<State>()) {}
DeviceReads::~DeviceReads() = default;
void DeviceReads::resize(std::vector<kernels::Site> /*sites*/, int /*ring_slots*/,
                         std::uint64_t /*plan_id*/, std::span<const Tensor> /*expected*/) {}
void DeviceReads::make_ahead(std::span<const Tensor> /*last*/) noexcept {}
bool DeviceReads::takes(const Tensor& /*tensor*/) const noexcept { return false; }
EntryTag DeviceReads::set(std::size_t /*entry*/, const Tensor& /*tensor*/) noexcept {
  return EntryTag::unsupported;
}
void DeviceReads::leave_out(std::size_t /*entry*/, EntryTag /*tag*/) noexcept {}
std::size_t DeviceReads::read(std::span<DeviceRead> /*out*/) noexcept { return 0; }
bool DeviceReads::wait(std::uint64_t& /*waited*/) noexcept { return true; }
bool DeviceReads::captured() const noexcept { return false; }
bool DeviceReads::all_read() const noexcept { return true; }
std::vector<std::shared_ptr<const DeviceSource>> DeviceReads::take_new_sources() { return {}; }
Tensor DeviceReads::norm() const { return {}; }
std::vector<Tensor> DeviceReads::found_nonfinite() const { return {}; }
std::vector<Tensor> DeviceReads::nonfinite_gradients() const { return {}; }
bool DeviceReads::clip(std::size_t /*count*/, double /*max_norm*/) noexcept { return false; }
void DeviceReads::note_use() noexcept {}
bool DeviceReads::is_capturing() const noexcept { return false; }
std::int32_t DeviceReads::copies() const noexcept { return 0; }
const std::string& DeviceReads::failure() const noexcept { return state_->failure; }

std::int32_t take_set_up_waits() noexcept { return 0; }

struct DeviceSample::State {};

DeviceSample::DeviceSample() = default;
DeviceSample::~DeviceSample() = default;
void DeviceSample::resize(std::span<const Tensor> /*params*/, std::int64_t /*per_param*/) {}
void DeviceSample::keep(std::span<const Tensor> /*params*/) noexcept {}
void DeviceSample::difference(std::span<const Tensor> /*params*/) noexcept {}
Tensor DeviceSample::changes(std::size_t /*i*/) const noexcept { return {}; }
Tensor DeviceSample::room_for_changes(std::size_t /*i*/) const noexcept { return {}; }

}  // namespace gradvane::collectors
