#pragma once
// Keeps signals with the program's own threads while one of ours is started.
#include <pthread.h>
#include <signal.h>

namespace gradvane::exporters {

/// All signals are blocked on this thread while it lives; a thread that is started meanwhile keeps them so.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;  // a scope
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace gradvane::exporters
