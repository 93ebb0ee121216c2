#include "tests/exporters/http/raw_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace gradvane::exporters::fakes {

RawClient::RawClient(std::uint16_t port) : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    ::close(std::exchange(descriptor_, -1));
  }
}

RawClient::RawClient(const std::filesystem::path& socket)
    : descriptor_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.string().copy(&address.sun_path[0], sizeof address.sun_path - 1);
  if (::connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    ::close(std::exchange(descriptor_, -1));
  }
}

RawClient::RawClient(RawClient&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), buffer_(std::move(other.buffer_)) {}

RawClient::~RawClient() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool RawClient::more(std::chrono::milliseconds limit) {
  pollfd wait{.fd = descriptor_, .events = POLLIN, .revents = 0};
  if (::poll(&wait, 1, static_cast<int>(limit.count())) <= 0) return false;
  std::array<char, 65536> piece;
  const auto got = ::recv(descriptor_, piece.data(), piece.size(), 0);
  if (got <= 0) return false;
  buffer_.append(piece.data(), static_cast<std::size_t>(got));
  return true;
}

Answer RawClient::receive(bool has_body, std::chrono::milliseconds limit) {
  std::size_t end = std::string::npos;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!more(limit)) return {};
  }
  Answer answer;
  const std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  answer.status = std::stoi(head.substr(head.find(' ') + 1));
  for (auto line = head.find("\r\n") + 2; line < head.size();) {
    const auto next = head.find("\r\n", line);
    const auto colon = head.find(": ", line);
    std::string name = head.substr(line, colon - line);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    answer.fields[name] = head.substr(colon + 2, next - colon - 2);
    line = next + 2;
  }
  if (answer.status == 304) return answer;  // never has a body, nor a length
  if (has_body && !answer.fields.contains("content-length")) {
    while (more(limit)) {
    }
    answer.body = std::exchange(buffer_, {});
    return answer;
  }
  const std::size_t length = has_body ? std::stoul(answer.fields["content-length"]) : 0;
  while (buffer_.size() < length) {
    if (!more(limit)) return {};
  }
  answer.body = buffer_.substr(0, length);
  buffer_.erase(0, length);
  return answer;
}

bool RawClient::is_closed_within(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  do {
    pollfd wait{.fd = descriptor_, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, 20) <= 0) continue;
    std::array<char, 65536> piece;
    if (::recv(descriptor_, piece.data(), piece.size(), 0) <= 0) return true;
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

void RawClient::shut_down_sending() const { ::shutdown(descriptor_, SHUT_WR); }

void RawClient::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  ::close(std::exchange(descriptor_, -1));
}

void RawClient::set_receive_buffer(int bytes) const {
  ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

Answer get(std::uint16_t port, const std::string& target, const std::string& more_fields,
           const std::string& method) {
  return get(RawClient(port), target, more_fields, method);
}

Answer get(RawClient client, const std::string& target, const std::string& more_fields,
           const std::string& method) {
  client.send(method + ' ' + target + " HTTP/1.1\r\nHost: localhost\r\n" + more_fields + "\r\n");
  return client.receive(method != "HEAD");
}

}  // namespace gradvane::exporters::fakes
