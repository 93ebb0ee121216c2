#pragma once
// CUPTI as the probes ask it: the ledger's table of functions, and what it has no use for itself.
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectors/sync_ledger/cupti/cupti_abi.hpp"

namespace gradvane::bench {

namespace cupti = collectors::cupti;

inline constexpr auto kSynchronizeDomain = static_cast<cupti::Domain>(4);

struct RawCupti {
  const cupti::Functions* functions = nullptr;
  int (*enable_domain)(std::uint32_t enable, cupti::Subscriber, cupti::Domain) = nullptr;
  int (*finalize)() = nullptr;
  int (*get_callback_state)(std::uint32_t* enabled, cupti::Subscriber, cupti::Domain,
                            std::uint32_t id) = nullptr;

  /// The one library that all probes use; ends the program where there is none.
  static const RawCupti& instance();
  static void set_path(std::string path);

  [[nodiscard]] std::string word(int result) const;  ///< its own name for a result
};

/// One callback.
struct Seen {
  cupti::Domain domain;
  cupti::Site site;
  const char* name;
  std::uint32_t id;
  std::uint32_t correlation;
  std::int64_t at;  ///< nanoseconds
  int result;       ///< at the exit
};

/// A subscription that keeps what it is told. It listens to one thread.
class Listener {
 public:
  Listener();
  ~Listener();
  Listener(const Listener&) = delete;  // CUPTI holds its address
  Listener& operator=(const Listener&) = delete;

  void hear_all(cupti::Domain domain);
  /// The ledger's calls; with those that copy asynchronously or without.
  void hear_ledgers(bool copies_too);
  /// The call by which the ledger knows that CUPTI lives.
  void hear_sign_of_life();
  void unsubscribe();

  [[nodiscard]] int result() const { return result_; }  ///< of subscribing
  [[nodiscard]] cupti::Subscriber handle() const { return handle_; }
  [[nodiscard]] int enabled() const { return enabled_; }
  [[nodiscard]] const char* owner() const { return owner_; }  ///< of what we did not get
  std::vector<Seen> seen;
  std::function<void(const Seen&)> also;  ///< called for each, in the callback

 private:
  static void on_callback(void* self, cupti::Domain domain, std::uint32_t id, const void* data);

  cupti::Subscriber handle_ = nullptr;
  int result_ = 0;
  int enabled_ = 0;
  char owner_[cupti::kOldNameBytes + 1] = {};
};

/// Prints one line: "V1 what was seen".
[[gnu::format(printf, 2, 3)]] void say(const char* probe, const char* format, ...);

[[nodiscard]] std::int64_t nanoseconds_now();
/// Milliseconds that a piece of work takes on this thread.
[[nodiscard]] double milliseconds_of(const std::function<void()>& work);

/// A driver's function as of version 12.0; null where it has none.
[[nodiscard]] void* driver_function(const char* name, unsigned version = 12000);

inline constexpr std::chrono::milliseconds kStall{20};  ///< of the kernel that calls stand behind

// The probes; each in a process of its own. Quick: fewer cases and rounds.
void probe_nesting(bool quick);             // V1
void probe_cost(bool quick);                // V3
void probe_finalize(bool quick);            // V4
void probe_finalize_at_exit(bool quick);    // V4, from a callback
void probe_copies(bool quick);              // V5
void probe_capture(bool quick);             // V6
void probe_synchronize(bool quick);         // V7
void probe_owner(bool quick);               // V8
void probe_releases(bool quick);            // V9
void probe_first_subscription(bool quick);  // V11

}  // namespace gradvane::bench
