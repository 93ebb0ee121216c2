#include "agent/process/process_signals.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>

namespace gradvane::agent {
namespace {

using Handler = void (*)(int);

// Handlers may run at any moment, also while static objects are destroyed: plain atomics only.
std::atomic<pid_t> owner{0};  ///< the process that our handlers act in
std::array<std::atomic<int>, NSIG> workers{};
std::atomic<int> first_ending{0};   ///< SIGTERM or SIGINT, which came; 0: neither
std::atomic<bool> is_fatal{false};  ///< it came before the process began to exit
std::atomic<bool> process_ends{false};
std::atomic<int> requests{0};
std::atomic<bool> got_ctrl_c{false};
static_assert(std::atomic<pid_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free);

// The kernel sends a SIGTERM when the time is over: this works whatever our threads wait for, and
// SIGALRM stays the program's.
timer_t deadline{};
std::atomic<bool> has_deadline{false};

struct sigaction before_ctrl_c{};  ///< what SIGINT did; written before our handler is installed
int ctrl_c_scopes = 0;             ///< under the mutex

/// Leaked on purpose: it is used while static objects are destroyed.
std::mutex& mutex() {
  static std::mutex& only = *new std::mutex;
  return only;
}

/// What the signal does without a handler. Async-signal-safe. Returns only in process 1.
void die_by(int signal) noexcept {
  struct sigaction fresh{};
  fresh.sa_handler = SIG_DFL;
  ::sigaction(signal, &fresh, nullptr);
  ::raise(signal);
  sigset_t blocked;  // in its own handler, and in our threads
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
}

void set_deadline(std::chrono::milliseconds time) noexcept {
  if (!has_deadline.load()) return;
  itimerspec at{};
  at.it_value.tv_sec = static_cast<time_t>(time.count() / 1000);
  at.it_value.tv_nsec = static_cast<long>(time.count() % 1000 * 1'000'000);
  ::timer_settime(deadline, 0, &at, nullptr);
}

void on_ending(int signal) {
  const int error = errno;
  if (::getpid() != owner.load()) return die_by(signal);
  if (!process_ends.load()) is_fatal.store(true);
  int first = 0;
  // In this order: either the last worker sees that it has come, or we see that the worker has ended.
  const bool is_first = first_ending.compare_exchange_strong(first, signal);
  if (!is_first || workers[static_cast<std::size_t>(signal)].load() == 0)
    die_by(is_first ? signal : first);
  else
    set_deadline(kEndBudget);
  errno = error;
}

void on_request(int signal) {
  const int error = errno;
  if (::getpid() != owner.load() || workers[static_cast<std::size_t>(signal)].load() == 0)
    die_by(signal);
  else
    requests.fetch_add(1);
  errno = error;
}

void on_ctrl_c(int signal) {
  const int error = errno;
  ::sigaction(SIGINT, &before_ctrl_c, nullptr);
  if (::getpid() == owner.load())
    got_ctrl_c.store(true);
  else
    ::raise(signal);  // arrives when this handler returns
  errno = error;
}

bool is_ending(int signal) noexcept { return signal == SIGTERM || signal == SIGINT; }
Handler handler_of(int signal) noexcept { return is_ending(signal) ? on_ending : on_request; }

bool is_handled_by(int signal, Handler handler) noexcept {
  struct sigaction current{};
  return ::sigaction(signal, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) == 0 &&
         current.sa_handler == handler;
}

bool install(int signal, Handler handler) noexcept {
  struct sigaction ours{};
  ours.sa_handler = handler;
  // Training must not see its system calls fail; and its threads may have a stack for signals.
  ours.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  return ::sigaction(signal, &ours, nullptr) == 0;
}

void give_back(int signal) noexcept {
  if (is_handled_by(signal, handler_of(signal))) ::signal(signal, SIG_DFL);
}

void make_deadline() noexcept {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGTERM;
  if (!has_deadline.load())
    has_deadline.store(::timer_create(CLOCK_MONOTONIC, &event, &deadline) == 0);
}

}  // namespace

bool take_signal(int signal) noexcept {
  const std::lock_guard lock(mutex());
  owner.store(::getpid());  // a forked child may have agents of its own
  workers[static_cast<std::size_t>(signal)].fetch_add(1);
  const Handler handler = handler_of(signal);
  if (is_handled_by(signal, handler)) return true;
  if (!is_handled_by(signal, SIG_DFL)) return false;
  if (is_ending(signal)) {
    if (::getpid() == 1) return true;
    make_deadline();
  }
  return install(signal, handler);
}

void give_signal_back(int signal) noexcept {
  {
    const std::lock_guard lock(mutex());
    if (workers[static_cast<std::size_t>(signal)].fetch_sub(1) > 1) return;
    give_back(signal);
    if (signal != SIGTERM) return;
    if (first_ending.load() == 0 && has_deadline.exchange(false)) ::timer_delete(deadline);
  }
  if (is_fatal.load()) die_by(first_ending.load());
}

int ending_signal() noexcept { return first_ending.load(); }

void postpone_death_by_signal(std::chrono::milliseconds time) noexcept {
  const std::lock_guard lock(mutex());
  itimerspec left{};
  if (first_ending.load() == 0 || !has_deadline.load() || ::timer_gettime(deadline, &left) != 0)
    return;
  if (left.it_value.tv_sec < time.count() / 1000) set_deadline(time);
}

int recording_requests() noexcept { return requests.load(); }

void note_process_ends() noexcept { process_ends.store(true); }
bool process_is_ending() noexcept { return process_ends.load(); }

CtrlC::CtrlC() noexcept {
  const std::lock_guard lock(mutex());
  if (ctrl_c_scopes++ > 0) return;
  owner.store(::getpid());
  got_ctrl_c.store(false);
  struct sigaction current{};
  if (::sigaction(SIGINT, nullptr, &current) != 0 || current.sa_handler == SIG_IGN) return;
  before_ctrl_c = current;
  (void)install(SIGINT, on_ctrl_c);
}

CtrlC::~CtrlC() {
  {
    const std::lock_guard lock(mutex());
    if (--ctrl_c_scopes > 0) return;
    if (is_handled_by(SIGINT, on_ctrl_c)) ::sigaction(SIGINT, &before_ctrl_c, nullptr);
  }
  if (got_ctrl_c.exchange(false) && !process_ends.load()) ::kill(::getpid(), SIGINT);
}

bool CtrlC::was_pressed() noexcept { return got_ctrl_c.load(); }

void lock_signals_before_fork() noexcept { mutex().lock(); }
void unlock_signals_in_parent() noexcept { mutex().unlock(); }

void give_signals_back_in_child() noexcept {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) {
    give_back(signal);
    workers[static_cast<std::size_t>(signal)].store(0);
  }
  if (is_handled_by(SIGINT, on_ctrl_c)) ::sigaction(SIGINT, &before_ctrl_c, nullptr);
  ctrl_c_scopes = 0;
  first_ending.store(0);
  is_fatal.store(false);
  got_ctrl_c.store(false);
  process_ends.store(false);
  has_deadline.store(false);  // timers stay with the parent
  mutex().unlock();
}

}  // namespace gradvane::agent
