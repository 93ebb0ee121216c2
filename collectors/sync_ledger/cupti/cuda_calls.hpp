#pragma once
// Which calls of the CUDA runtime and driver the ledger looks at, and what each may make the CPU wait for.
// Rules: "API synchronization behavior" of the CUDA runtime's documentation. Anything that only may block
// is judged by how long it took.
#include <array>
#include <cstdint>
#include <span>

#include "collectors/sync_ledger/cupti/cupti_abi.hpp"

namespace gradvane::collectors {

enum class CallClass : std::uint8_t {
  none,
  device,
  stream,
  event,
  poll,
  copy,        ///< waits, unless it stays on the device
  copy_async,  ///< should not wait
  allocation,  ///< may wait
  module,      ///< may wait
};

enum class CopyDirection : std::uint8_t {
  host_to_host = 0,  // these as cudaMemcpyKind has them
  host_to_device = 1,
  device_to_host = 2,
  device_to_device = 3,
  unknown = 4,
};

struct CudaCall {
  cupti::Domain domain;
  std::uint16_t id;
  const char* name;  ///< as cuptiGetCallbackName has it
  CallClass what;
  std::uint8_t stream_at = 255;     ///< byte offset of the stream in the parameters; 255: none
  std::uint8_t direction_at = 255;  ///< of a cudaMemcpyKind
  CopyDirection direction = CopyDirection::unknown;  ///< where the function's name says it
};

[[nodiscard]] std::span<const CudaCall> cuda_calls() noexcept;

/// The call of an id; null where the ledger does not look at it.
[[nodiscard]] const CudaCall* cuda_call(cupti::Domain domain, std::uint32_t id) noexcept;

}  // namespace gradvane::collectors
