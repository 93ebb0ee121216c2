#pragma once
// CUPTI's one subscription: asked for, held, found dead, given back.
#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "collectors/sync_ledger/call_intake.hpp"
#include "collectors/sync_ledger/cupti/cupti_abi.hpp"

namespace gradvane::collectors {

/// Where it is held, CUPTI calls back for every call that cuda_calls() lists, and `intake` takes it.
/// One thread at a time, but for what is said to be for any.
class CuptiSubscription {
 public:
  /// The world outside, so that tests can bring another.
  struct World {
    const cupti::Functions* (*load)(const std::string& path, std::string& why);
    bool (*has_driver)();   ///< in this process
    bool (*has_proton)();   ///< in this process: Triton's profiler, with a libcupti of its own
    void (*call_driver)();  ///< cuDriverGetVersion, where there is a driver
    std::int64_t (*now)();  ///< monotonic, nanoseconds
    void (*loaded)();       ///< a libcupti has been loaded, perhaps not for the first time
  };
  static World real_world() noexcept;

  CuptiSubscription(const World& world, CallIntake& intake)
      : call_driver_(world.call_driver), intake_(intake) {}
  CuptiSubscription(const CuptiSubscription&) = delete;  // CUPTI holds its address
  CuptiSubscription& operator=(const CuptiSubscription&) = delete;

  struct Answer {
    int result = cupti::kUnknownError;
    /// The tool that has it already, zero-terminated; empty where CUPTI does not say.
    std::array<char, cupti::kOldNameBytes + 1> holder{};
  };
  /// Asks for it; with `shared`, together with other tools that share. What was asked for is held if the
  /// result is kSuccess.
  Answer ask(const cupti::Functions& functions, bool shared) noexcept;
  /// Has callbacks enabled, once it is held: a step may be counted from here on. False where none could be.
  bool count_calls() noexcept;
  /// A thread may still be in the callback when this returns.
  void give_back() noexcept;
  /// It died with the rest of CUPTI: its handle leads anywhere.
  void forget() noexcept { subscriber_ = nullptr; }

  [[nodiscard]] bool is_held() const noexcept { return subscriber_ != nullptr; }
  /// Calls that CUPTI knew, of those that were to be counted.
  [[nodiscard]] int enabled() const noexcept { return enabled_; }

  // Any thread ------------------------------------------------------------------------------------------

  /// Odd while calls are counted; another one with each subscription.
  [[nodiscard]] std::uint64_t generation() const noexcept {
    return generation_.load(std::memory_order_relaxed);
  }
  /// Whether CUPTI still calls back. True too while it never has: see has_sign().
  [[nodiscard]] bool is_alive() noexcept;
  /// It has called back since it was asked for, so that its end would be seen.
  [[nodiscard]] bool has_sign() const noexcept { return has_sign_.load(); }
  /// CUPTI announced its own end.
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_.load(); }
  /// Callbacks do nothing from now on.
  void close() noexcept { is_open_.store(false); }

 private:
  static void on_callback(void* user, cupti::Domain domain, std::uint32_t id, const void* data);
  [[nodiscard]] bool still_calls_back() noexcept;

  void (*call_driver_)();
  CallIntake& intake_;
  const cupti::Functions* functions_ = nullptr;
  cupti::Subscriber subscriber_ = nullptr;
  int enabled_ = 0;

  std::atomic<bool> is_open_{false};
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> has_sign_{false};
};

}  // namespace gradvane::collectors
