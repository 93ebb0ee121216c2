#pragma once
// What is looked for in a copy before it counts as good, on a thread of its own: the copy may be large.
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "agent/snapshots/training_state.hpp"

namespace gradvane::agent {

struct Examined {
  std::string nonfinite{};  ///< the name of a tensor that holds NaN or infinity; empty: none does
  std::uint64_t checksum = 0;
};

[[nodiscard]] Examined examined(const StateCopy& copy, const std::set<std::string>& masks);

/// The copy must stay as it is until this is over or gone.
class Examination {
 public:
  Examination(const StateCopy& copy, const std::set<std::string>& masks);
  ~Examination();
  Examination(const Examination&) = delete;  // its thread has its address
  Examination& operator=(const Examination&) = delete;

  [[nodiscard]] bool is_over() const noexcept { return is_over_.load(std::memory_order_acquire); }
  /// Waits until it is over. Throws what it threw.
  [[nodiscard]] Examined result();

 private:
  Examined found_{};
  std::exception_ptr error_{};
  std::atomic<bool> is_over_{false};
  pid_t owner_;
  std::thread thread_;
};

}  // namespace gradvane::agent
