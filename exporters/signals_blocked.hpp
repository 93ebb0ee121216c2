#pragma once
// Keeps signals with the program's own threads while one of ours is started.
#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace gradvane::exporters {

/// Signals are blocked on this thread while it lives; a thread that is started meanwhile keeps them so. Those that
/// tell of a fault of the thread itself are not: a crash handler is to see ours too.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
      sigdelset(&all, fault);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;  // a scope
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace gradvane::exporters
