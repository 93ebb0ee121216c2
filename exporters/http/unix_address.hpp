#pragma once
// An address on a unix socket, unix:/path: a name in the file system that people choose, and how a server listens there.
#include <sys/types.h>

#include <string>
#include <string_view>

namespace gradvane::exporters {

/// `unix:` and an absolute path of at most 100 bytes: other programs can say no more than 107. A colon is not allowed in
/// it, because what follows one is a path of HTTP: unix:/path:/rank/1, as nginx writes it.
[[nodiscard]] bool is_unix_address(std::string_view address) noexcept;

/// A name that a server listens on. Not thread-safe, and for the process that made it: a forked child leaves the name.
class UnixName {
 public:
  UnixName() = default;
  ~UnixName() =
      default;  // the name stays, as after a process that was killed; remove() takes it away
  UnixName(const UnixName&) = delete;
  UnixName& operator=(const UnixName&) = delete;

  /// Listens on `address`, or on address.1, address.2, ... where live processes have those before: `tries` in all. A
  /// socket that no process listens on is what a killed process left, and is replaced. Anything else of that name stays, and
  /// is an error. Only this user may connect (mode 0600). To be called once.
  /// @return  a listening, non-blocking descriptor, close-on-exec; -1 with error()
  [[nodiscard]] int listen(std::string_view address, int tries, int backlog);

  /// unix:/path; empty before listen() has gone well.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] const std::string& error() const noexcept { return error_; }

  /// If it is still ours: the user may have moved it, and another run may have it now.
  void remove() noexcept;

 private:
  std::string address_;
  std::string error_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace gradvane::exporters
