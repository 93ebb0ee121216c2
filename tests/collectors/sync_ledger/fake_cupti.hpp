#pragma once
// A CUPTI without a GPU: keeps who has subscribed and which calls are enabled, and makes CUDA calls that do
// nothing but raise the callbacks of real ones.
#include <cstdint>
#include <functional>
#include <string>

#include "collectors/sync_ledger/cupti/cuda_calls.hpp"
#include "collectors/sync_ledger/cupti/cupti_abi.hpp"

namespace gradvane::collectors {

/// What a profiler that begins is called.
inline constexpr const char* kProfiler = "PyTorch's profiler";

/// Parameters as the generated headers of CUPTI lay them out.
struct CopyParams {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
  std::int32_t kind = 4;
  const void* stream = nullptr;
};
struct StreamParams {
  const void* stream = nullptr;
};

/// One for the process, as CUPTI is. Calls may come from any thread.
class FakeCupti {
 public:
  static FakeCupti& instance();

  /// As nobody had ever used it.
  void reset();

  [[nodiscard]] const cupti::Functions& functions() const { return functions_; }

  // What the outside does ------------------------------------------------------------------------------

  /// Another tool has the subscription. Empty: nobody.
  void take_by(const std::string& owner);
  /// Every further subscription fails with this result. 0: none does.
  void refuse(int result);
  /// Called while somebody subscribes, on that thread.
  void on_subscribe(std::function<void()> hook);
  /// Another version of CUPTI: this call has another name there.
  void rename(const char* call);
  /// Another tool calls cuptiFinalize: callbacks stop and the handle is dead.
  void finalize();
  /// Does not call back for cuDriverGetVersion: what a CUPTI may do that no one has seen.
  void hide_signs(bool are_hidden);
  /// What was asked of it with a handle that was not, or no more, one of its own.
  [[nodiscard]] int dead_handles() const;
  void announce_fatal_error();

  [[nodiscard]] bool is_subscribed() const;
  [[nodiscard]] int subscriptions() const;  ///< that succeeded so far
  [[nodiscard]] int enabled() const;
  [[nodiscard]] const cupti::SubscriberParams& last_params() const;

  // The program's calls --------------------------------------------------------------------------------

  /// Calls a function by CUPTI's name for it: ENTER, `inside`, EXIT. Only what is enabled raises anything.
  void call(const char* name, const void* params = nullptr, int result = 0,
            const std::function<void()>& inside = {});
  /// The same without anything inside, for many calls of one kind.
  struct Call {
    const CudaCall* what = nullptr;
    CopyParams params = {};
  };
  [[nodiscard]] Call find(const char* name) const;
  void raise_pair(const Call& call) noexcept;

  void enter(const char* name, const void* params, std::uint64_t& correlation);
  void exit(const char* name, const void* params, std::uint64_t& correlation, int result = 0);
  /// cuDriverGetVersion, which the table of calls does not have.
  void call_driver();

 private:
  FakeCupti();
  cupti::Functions functions_;
};

}  // namespace gradvane::collectors
