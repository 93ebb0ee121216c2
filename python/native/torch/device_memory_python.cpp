// What torch's caching allocator holds, as torch.cuda says.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>

#include "collectors/tensors/device_memory.hpp"
#include "python/native/torch/torch_ops.hpp"
#include "python/text.hpp"

namespace gradvane::collectors {

namespace py = pybind11;

/// With the GIL.
std::optional<DeviceMemoryUse> device_memory_use() noexcept try {
  const py::object use = python::torch_op("device_memory");
  if (use.is_none()) return std::nullopt;
  const auto [allocated, reserved, peak, retries, failures, limit] =
      py::cast<std::array<std::int64_t, 6>>(use);
  return DeviceMemoryUse{.allocated_bytes = allocated,
                         .reserved_bytes = reserved,
                         .peak_bytes = peak,
                         .allocation_retries = retries,
                         .out_of_memory = failures,
                         .limit_bytes = limit};
} catch (...) {  // an allocator that keeps no statistics
  return std::nullopt;
}

}  // namespace gradvane::collectors
