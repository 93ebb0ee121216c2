// What torch's caching allocator holds, as torch.cuda says.
#include <pybind11/pybind11.h>

#include "collectors/tensors/device_memory.hpp"
#include "python/native/torch_ops.hpp"

namespace gradvane::collectors {

namespace py = pybind11;

/// With the GIL.
std::optional<DeviceMemoryUse> device_memory_use() noexcept try {
  const py::object use = python::torch_op("device_memory");
  if (use.is_none()) return std::nullopt;
  const auto [allocated, reserved] = py::cast<std::pair<std::int64_t, std::int64_t>>(use);
  return DeviceMemoryUse{allocated, reserved};
} catch (...) {  // an allocator that keeps no statistics
  return std::nullopt;
}

}  // namespace gradvane::collectors
