#pragma once
// What happens to the process as a whole: fork, exit, an uncaught exception. Signals are in process_signals.
#include <string_view>

namespace gradvane::agent {

/// Someone who must hear of the process's fate.
class ProcessMember {
 public:
  virtual ~ProcessMember() = default;
  /// The process is about to end: begin to end too, without waiting. Not called on the member's own threads
  /// but where one of them ends the process.
  virtual void process_ends(bool failed, std::string_view reason) noexcept = 0;
  /// After process_ends() of all members: wait for the end, for a bounded time.
  virtual void await_end() noexcept = 0;
  /// In the child of a fork, before anything else runs there. Async-signal-safe calls only.
  virtual void in_forked_child() noexcept = 0;
};

/// Tells `member` from now on. Handlers of exit and fork are installed by the first call and stay, since
/// neither can be taken back: without a member they do nothing.
void join_process_watch(ProcessMember& member);
/// After it returns `member` is not called any more. Waits for a call in progress on another thread. After
/// the last member std::terminate has its former handler again, if nobody has replaced ours.
void leave_process_watch(ProcessMember& member) noexcept;

}  // namespace gradvane::agent
