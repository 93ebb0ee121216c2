#pragma once
// Which GPU a CUDA device of this process is.
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "record/run/run_info.hpp"

namespace gradvane::collectors {

/// As NVML, nvidia-smi and DCGM write it: GPU-8f1c40a7-….
[[nodiscard]] std::string gpu_uuid(const std::array<std::uint8_t, 16>& bytes);

/// Asks the CUDA runtime, which may take milliseconds: at set-up. Makes no context and waits for nothing
/// that the device does. Absent if there is no such device, and in a build without CUDA.
/// @param index  of the process, as in `cuda:0`; CUDA_VISIBLE_DEVICES has been applied
[[nodiscard]] std::optional<record::DeviceInfo> device_info(int index) noexcept;

}  // namespace gradvane::collectors
