#pragma once
// Writing past RLIMIT_FSIZE raises SIGXFSZ, and writing to a pipe that nobody reads SIGPIPE. Both end the
// program unless something looks after them.
#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <ctime>
#include <initializer_list>

namespace gradvane::exporters {

/// While it lives, such a write fails with EFBIG or EPIPE on this thread, and nothing else happens. The signal
/// goes to the thread that writes, so blocking it here and taking it away again is seen by nobody.
class FileSignalsBlocked {
 public:
  FileSignalsBlocked() noexcept {
    sigset_t pending;
    sigpending(&pending);
    sigemptyset(&ours_);
    sigset_t both;
    sigemptyset(&both);
    for (const int signal : {SIGXFSZ, SIGPIPE}) {
      sigaddset(&both, signal);
      if (sigismember(&pending, signal) == 0) sigaddset(&ours_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &both, &before_);
  }
  ~FileSignalsBlocked() {
    const int error = errno;  // the caller wants that of its write
    const timespec now{};
    while (sigtimedwait(&ours_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  FileSignalsBlocked(const FileSignalsBlocked&) = delete;  // a scope
  FileSignalsBlocked& operator=(const FileSignalsBlocked&) = delete;

 private:
  sigset_t ours_{};  ///< those that were not pending before
  sigset_t before_{};
};

}  // namespace gradvane::exporters
