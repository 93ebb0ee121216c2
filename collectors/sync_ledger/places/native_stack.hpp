#pragma once
// The native callers of the calling thread, beyond the libraries that everybody calls CUDA through.
#include <array>
#include <cstdint>

#include "collectors/sync_ledger/cupti/cuda_calls.hpp"
#include "collectors/sync_ledger/thread_table.hpp"

namespace gradvane::collectors {

/// Unwinding takes microseconds, so it is done once for each way to a call. After that the same way is
/// known by where its return addresses lie on the stack: the same values in the same words, the same way.
class NativeStack {
 public:
  struct Callers {
    std::array<std::uintptr_t, Place::kLines> addresses{};  ///< innermost first
    int count = 0;
  };

  /// The innermost caller's return address; null where it cannot be known. `callers` is filled where it
  /// was unwound. In a callback: no lock, no allocation.
  static const void* find(ThreadTable& table, const CudaCall& call, Callers& callers) noexcept;

  /// False where this system has no way to unwind without a lock.
  [[nodiscard]] static bool available() noexcept;
  /// Looks for what unwinding needs. Not from a callback.
  static void look() noexcept;
};

/// Whether a library of this path is one that everybody calls CUDA through.
[[nodiscard]] bool is_passed_over_library(const char* path) noexcept;

}  // namespace gradvane::collectors
