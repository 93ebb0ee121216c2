#include "tests/exporters/alert_push/answering_server.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string_view>

namespace gradvane::exporters::fakes {
namespace {

constexpr auto kPatience = std::chrono::seconds(30);

bool is_readable(int descriptor) {
  pollfd wait{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&wait, 1, 10) > 0;
}

bool send_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto sent = ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::size_t body_length(const std::string& head) {
  const auto at = head.find("Content-Length: ");
  return at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
}

}  // namespace

AnsweringServer::AnsweringServer(Behaviour behaviour) : behaviour_(std::move(behaviour)) {
  listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listening_, generic, size) != 0 || ::listen(listening_, 64) != 0 ||
      ::getsockname(listening_, generic, &size) != 0) {
    throw std::runtime_error("no port for a test's server");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::jthread([this] { accept_all(); });
}

AnsweringServer::~AnsweringServer() {
  is_over_ = true;
  acceptor_.join();
  connections_.clear();
  ::close(listening_);
}

void AnsweringServer::behave(Behaviour behaviour) {
  const std::lock_guard lock(mutex_);
  behaviour_ = std::move(behaviour);
}

std::vector<Received> AnsweringServer::received() const {
  const std::lock_guard lock(mutex_);
  return received_;
}

bool AnsweringServer::wait_for(std::size_t requests) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return received_.size() >= requests; });
}

void AnsweringServer::accept_all() {
  while (!is_over_) {
    if (!is_readable(listening_)) continue;
    const int descriptor = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor >= 0) connections_.emplace_back([this, descriptor] { serve(descriptor); });
  }
}

void AnsweringServer::serve(int descriptor) {
  std::string bytes;
  std::size_t end = std::string::npos;
  while (!is_over_) {
    end = bytes.find("\r\n\r\n");
    if (end != std::string::npos && bytes.size() >= end + 4 + body_length(bytes.substr(0, end)))
      break;
    if (!is_readable(descriptor)) continue;
    std::array<char, 65536> piece;
    const auto got = ::recv(descriptor, piece.data(), piece.size(), 0);
    if (got <= 0) break;
    bytes.append(piece.data(), static_cast<std::size_t>(got));
  }
  if (end != std::string::npos) {
    Behaviour behaviour;
    {
      const std::lock_guard lock(mutex_);
      received_.push_back({bytes.substr(0, end), bytes.substr(end + 4)});
      behaviour = behaviour_;
    }
    changed_.notify_all();
    answer(descriptor, behaviour);
  }
  ::close(descriptor);
}

void AnsweringServer::send_for_ever(int descriptor, char what) const {
  const std::string piece(65536, what);
  while (!is_over_ && send_all(descriptor, piece)) continue;
}

void AnsweringServer::answer(int descriptor, const Behaviour& behaviour) {
  const std::string start =
      "HTTP/1.1 " + std::to_string(behaviour.status) + " Whatever\r\nContent-Length: ";
  switch (behaviour.manner) {
    case Manner::whole:
      (void)send_all(descriptor,
                     start + std::to_string(behaviour.body.size()) + "\r\n\r\n" + behaviour.body);
      return;
    case Manner::closes:
      return;
    case Manner::silent:
      while (!is_over_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    case Manner::drips:
      for (std::size_t i = 0; !is_over_; ++i) {
        const std::string byte(1, i < start.size() ? start[i] : '1');
        if (!send_all(descriptor, byte)) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      return;
    case Manner::floods:
      if (!send_all(descriptor, start + "1000000000000\r\n\r\n")) return;
      send_for_ever(descriptor, 'x');
      return;
    case Manner::endless_line:
      if (!send_all(descriptor, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")) return;
      send_for_ever(descriptor, '1');
      return;
  }
}

}  // namespace gradvane::exporters::fakes
