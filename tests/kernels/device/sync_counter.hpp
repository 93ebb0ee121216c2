#pragma once
// Counts, through CUPTI, what the CUDA runtime is asked to do while it lives: by any thread of the process.
#include <memory>

namespace gradvane::kernels::test {

class SyncCounter {
 public:
  /// Throws std::runtime_error where CUPTI cannot be had.
  SyncCounter();
  ~SyncCounter();
  SyncCounter(const SyncCounter&) = delete;  // CUPTI holds its address
  SyncCounter& operator=(const SyncCounter&) = delete;

  [[nodiscard]] int syncs() const;  ///< waits for device, stream or event, and blocking copies
  [[nodiscard]] int allocations() const;  ///< of device or pinned memory, and frees
  [[nodiscard]] int launches() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gradvane::kernels::test
