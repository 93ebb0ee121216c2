#pragma once
// Writing past RLIMIT_FSIZE raises SIGXFSZ, which ends the program unless somebody looks after it.
#include <pthread.h>
#include <signal.h>

#include <ctime>

namespace gradvane::exporters::recording {

/// While it lives, such a write fails with EFBIG on this thread, and nothing else happens. The signal goes to
/// the thread that writes, so blocking it here and taking it away again is seen by nobody.
class FileSignalsBlocked {
 public:
  FileSignalsBlocked() noexcept {
    sigemptyset(&xfsz_);
    sigaddset(&xfsz_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &xfsz_, &before_);
  }
  ~FileSignalsBlocked() {
    const timespec now{};
    while (!was_pending_ && sigtimedwait(&xfsz_, nullptr, &now) == SIGXFSZ) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSignalsBlocked(const FileSignalsBlocked&) = delete;  // a scope
  FileSignalsBlocked& operator=(const FileSignalsBlocked&) = delete;

 private:
  sigset_t xfsz_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

}  // namespace gradvane::exporters::recording
