#pragma once
// The signals of the process: SIGTERM, SIGINT and the one that asks for a recording, which are ours while a
// worker runs, and Ctrl-C, which is ours while a program waits for the end of a run, also where the program
// handles it itself. The only file that installs signal handlers.
//
// Each handler acts only in the process that installed it, and only while a worker runs there. Anywhere else
// it does what the signal does without us, at once: in a forked child, after the last run has ended, or when a
// handler of the program's own calls it.
#include <chrono>

namespace gradvane::agent {

/// How long the end of a run may take, apart from the wait for one more scrape.
inline constexpr std::chrono::seconds kEndBudget{10};

/// Counts one more running worker that acts on `signal` (SIGTERM, SIGINT, SIGUSR1 or SIGUSR2). Installs our handler
/// unless the program handles or ignores the signal itself: then it returns false, and no handler has changed.
/// SIGTERM and SIGINT are left alone in process 1, which the kernel protects from signals that have no handler.
bool take_signal(int signal) noexcept;
/// One worker less, which must have been counted. After the last one the signal has its default action again,
/// if the handler is still ours; and if SIGTERM or SIGINT has come before the process began to exit, it dies by
/// that one once SIGTERM is given back.
void give_signal_back(int signal) noexcept;

/// SIGTERM or SIGINT once our handler has taken one of them, else 0. From then on the workers have kEndBudget to
/// end, else the process dies without them; a second one kills at once. Lock-free.
[[nodiscard]] int ending_signal() noexcept;
/// The process dies by the signal that it has received no sooner than after `time`, if the workers have not
/// ended before.
void postpone_death_by_signal(std::chrono::milliseconds time) noexcept;

/// How many recordings were asked for. Lock-free.
[[nodiscard]] int recording_requests() noexcept;

/// The process has begun to exit. A SIGTERM or Ctrl-C that comes now only ends the wait for a scrape, and the
/// exit status is the program's own. A process that has still not ended kEndBudget after SIGTERM dies by it.
void note_process_ends() noexcept;
[[nodiscard]] bool process_is_ending() noexcept;

/// Around a wait for the end of a run. The first Ctrl-C (SIGINT) is noted and the next one has its former
/// action again. If the program ignores Ctrl-C, nothing changes. Any thread.
class CtrlC {
 public:
  CtrlC() noexcept;
  /// A Ctrl-C that was noted is sent again, unless the process is ending: the program gets to see it.
  ~CtrlC();
  CtrlC(const CtrlC&) = delete;  // a scope
  CtrlC& operator=(const CtrlC&) = delete;

  /// Whether it came. Lock-free.
  [[nodiscard]] static bool was_pressed() noexcept;
};

/// Around fork(), for the file that watches it. The child gives every signal back.
void lock_signals_before_fork() noexcept;
void unlock_signals_in_parent() noexcept;
void give_signals_back_in_child() noexcept;

}  // namespace gradvane::agent
