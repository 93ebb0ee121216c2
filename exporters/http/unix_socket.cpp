#include "exporters/http/unix_socket.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>

namespace gradvane::exporters {
namespace {

constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

/// Through /proc, as a socket has no call that takes a directory. Empty where the name is too long.
std::optional<sockaddr_un> address_of(int directory, const std::string& name) noexcept try {
  const std::string path = "/proc/self/fd/" + std::to_string(directory) + '/' + name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::span<char> room(address.sun_path);
  errno = ENAMETOOLONG;
  if (path.size() >= room.size()) return std::nullopt;
  std::ranges::copy(path, room.begin());
  return address;
} catch (...) {
  errno = ENOMEM;
  return std::nullopt;
}

const sockaddr* generic(const sockaddr_un& address) noexcept {
  return reinterpret_cast<const sockaddr*>(&address);
}

int closed(int descriptor) noexcept {
  const int error = errno;
  ::close(descriptor);
  errno = error;
  return -1;
}

}  // namespace

bool has_unix_sockets() noexcept { return ::access("/proc/self/fd", X_OK) == 0; }

int listen_on_unix(int directory, const std::string& name, int backlog) noexcept {
  const auto address = address_of(directory, name);
  if (!address) return -1;
  const int descriptor = ::socket(AF_UNIX, kType, 0);
  if (descriptor < 0) return -1;
  ::unlinkat(directory, name.c_str(), 0);
  // Nobody can connect before listen(), so the mode holds from the first moment.
  if (::bind(descriptor, generic(*address), sizeof *address) != 0 ||
      ::fchmodat(directory, name.c_str(), 0600, 0) != 0 || ::listen(descriptor, backlog) != 0)
    return closed(descriptor);
  return descriptor;
}

int connect_to_unix(int directory, const std::string& name) noexcept {
  const auto address = address_of(directory, name);
  if (!address) return -1;
  const int descriptor = ::socket(AF_UNIX, kType, 0);
  if (descriptor < 0) return -1;
  if (::connect(descriptor, generic(*address), sizeof *address) != 0) return closed(descriptor);
  return descriptor;
}

}  // namespace gradvane::exporters
