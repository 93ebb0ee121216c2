#pragma once
// What happens to the process as a whole: fork, exit, an uncaught exception, signals. The only file
// that installs process-wide handlers.
#include <string_view>

namespace gradvane::agent {

/// Someone who must hear of the process's fate.
class ProcessMember {
 public:
  virtual ~ProcessMember() = default;
  /// The process is about to end; may take a few seconds. Not called on the member's own threads.
  virtual void process_ends(bool failed, std::string_view reason) noexcept = 0;
  /// In the child of a fork, before anything else runs there. Async-signal-safe calls only.
  virtual void in_forked_child() noexcept = 0;
};

/// Tells `member` from now on. The first call installs the handlers, which stay; SIGTERM's only with
/// `handle_sigterm`, and only where its disposition is the default one.
void join_process_watch(ProcessMember& member, bool handle_sigterm);
/// After it returns `member` is not called any more. Waits for a call in progress on another thread.
void leave_process_watch(ProcessMember& member) noexcept;

/// True once our handler has seen SIGTERM. Lock-free.
[[nodiscard]] bool sigterm_received() noexcept;
/// To be called once by each member when it has done what it had to do after SIGTERM. Once all have,
/// the process dies by the signal, as it would have without us.
void done_with_sigterm() noexcept;

/// From now on `signal` asks for a recording, unless somebody handles it already: then it returns false, and
/// nothing has changed.
[[nodiscard]] bool take_recording_requests(int signal) noexcept;
/// How many there were. Lock-free.
[[nodiscard]] int recording_requests() noexcept;

}  // namespace gradvane::agent
