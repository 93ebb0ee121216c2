// A build without CUDA.
#include "collectors/tensors/device_sample.hpp"

namespace gradvane::collectors {

struct DeviceSample::State {};

DeviceSample::DeviceSample() = default;
DeviceSample::~DeviceSample() = default;
void DeviceSample::resize(std::span<const Tensor> /*params*/, std::int64_t /*per_param*/) {}
void DeviceSample::keep(std::span<const Tensor> /*params*/) noexcept {}
void DeviceSample::difference(std::span<const Tensor> /*params*/) noexcept {}
Tensor DeviceSample::changes(std::size_t /*i*/) const noexcept { return {}; }
Tensor DeviceSample::room_for_changes(std::size_t /*i*/) const noexcept { return {}; }

}  // namespace gradvane::collectors
