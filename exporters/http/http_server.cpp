#include "exporters/http/http_server.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "exporters/http/http_connection.hpp"
#include "exporters/http/unix_address.hpp"
#include "exporters/http/unix_socket.hpp"
#include "exporters/signals_blocked.hpp"

namespace gradvane::exporters {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr int kBacklog = 4096;      // a full one makes clients wait for a whole second
constexpr int kAcceptsAtOnce = 16;  // then those that were taken are read, before more make them go
constexpr int kNiceness = 5;        // training goes first; the agent's pages can wait a moment
constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kLongestPause{1000};
constexpr std::chrono::milliseconds kLastGrace{200};

/// A bound, listening, non-blocking descriptor that no child program inherits; -1 with errno set.
int listen_on(const tcp::endpoint& endpoint) {
  const int descriptor = ::socket(endpoint.protocol().family(),
                                  SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (descriptor < 0) return -1;
  const int on = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // past runs in TIME_WAIT
  if (::bind(descriptor, endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0 &&
      ::listen(descriptor, kBacklog) == 0) {
    return descriptor;
  }
  const int error = errno;
  ::close(descriptor);
  errno = error;
  return -1;
}

std::uint16_t port_of(int descriptor) noexcept {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

using Identity = std::pair<dev_t, ino_t>;

/// Of the open file; none where the descriptor is closed.
std::optional<Identity> identity_of(int descriptor) noexcept {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return std::nullopt;
  return Identity{status.st_dev, status.st_ino};
}

}  // namespace

/// Shared by the owner and the thread, so that a thread that had to be left behind still has it.
class HttpServer::Impl : public std::enable_shared_from_this<HttpServer::Impl> {
 public:
  Impl(std::map<std::string, HttpHandler> routes, HttpServerOptions options)
      : shared_{.routes = std::move(routes), .options = std::move(options)},
        slots_(shared_.options.max_connections) {
    for (auto& slot : slots_) slot.descriptor = -1;
  }

  HttpStart start(const std::string& address, std::uint16_t port, int port_tries) {
    if (is_unix_address(address)) return start_on_unix_address(address, port_tries);
    error_code error;
    const auto ip = asio::ip::make_address(address == "localhost" ? "127.0.0.1" : address, error);
    if (error) return {.error = "'" + address + "' is not an IP address"};

    int descriptor = -1;
    int next = port;
    do {
      descriptor = listen_on({ip, static_cast<std::uint16_t>(next)});
      ++next;
    } while (descriptor < 0 && errno == EADDRINUSE && port != 0 && next <= 65535 &&
             next < port + port_tries);
    if (descriptor < 0) {
      return {.error = "cannot listen on " + address + " port " + std::to_string(port) +
                       (next > port + 1 ? " to " + std::to_string(next - 1) : std::string()) +
                       ": " + std::strerror(errno)};
    }
    port_ = port_of(descriptor);
    shared_.token = {.text = shared_.options.token,
                     .cookie = "gradvane_token_" + std::to_string(port_),
                     .is_secure = shared_.options.web && shared_.options.web->has_tls()};
    serve(descriptor);
    return {.port = port_};
  }

  HttpStart start_on_unix_address(const std::string& address, int tries) {
    const int descriptor = name_.listen(address, tries, kBacklog);
    if (descriptor < 0) return {.error = name_.error()};
    shared_.token = {.text = shared_.options.token, .cookie = "gradvane_token_0"};
    serve(descriptor);
    return {.unix_address = name_.address()};
  }

  HttpStart start_on_unix(int directory, const std::string& name) {
    const int descriptor = listen_on_unix(directory, name, kBacklog);
    if (descriptor < 0)
      return {.error = "cannot listen on the unix socket " + name + ": " + std::strerror(errno)};
    serve(descriptor);
    return {};
  }

  void stop(std::chrono::milliseconds budget) {
    if (!thread_.joinable()) return;
    name_.remove();
    if (!leave_if_closed()) {
      asio::post(context_, [this] { finish(); });  // `this` outlives the context, being its owner
      if (done_.wait_for(budget) != std::future_status::ready) context_.stop();
    }
    if (done_.wait_for(kLastGrace) == std::future_status::ready) {
      thread_.join();
      if (!is_left_) net_.reset();  // the owner may live on: its descriptors shall not
    } else {
      thread_.detach();  // stuck in a handler, which is not ours to end
    }
  }

  bool leave_if_closed() noexcept {
    const int descriptor = listening_;
    if (is_left_ || descriptor < 0 || identity_of(descriptor) == identity_) return is_left_;
    is_left_ = true;
    name_.remove();
    for (auto& slot : slots_) slot.descriptor = -1;
    listening_ = -1;
    context_.stop();
    (void)net_.release();  // its destructor would close what is not ours
    return true;
  }

  void close_in_child() noexcept {
    for (auto& slot : slots_) close_copy(slot.descriptor);
    close_copy(listening_);
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

 private:
  struct Slot {
    std::atomic<int> descriptor = -1;  ///< for close_in_child()
    std::weak_ptr<HttpConnection> connection;
  };

  static void close_copy(std::atomic<int>& descriptor) noexcept {
    const int copy = descriptor.exchange(-1);
    if (copy >= 0) ::close(copy);
  }

  /// Asio never asks what kind of socket it is.
  void serve(int descriptor) {
    acceptor_.assign(tcp::v4(), descriptor);
    listening_ = descriptor;
    identity_ = identity_of(descriptor);
    const SignalsBlocked for_the_thread_to_inherit;
    thread_ = std::jthread([self = shared_from_this()] { self->run(); });
  }

  void run() noexcept {
    pthread_setname_np(pthread_self(), "gradvane-http");
    const auto self = static_cast<id_t>(gettid());
    ::setpriority(PRIO_PROCESS, self, ::getpriority(PRIO_PROCESS, self) + kNiceness);
    bool is_over = false;
    while (!is_over) {
      try {
        if (!is_accepting_) accept_more();
        context_.run();
        is_over = true;
      } catch (...) {  // out of memory for one connection; the others go on
      }
    }
    over_.set_value();
  }

  void accept_more() {
    is_accepting_ = true;
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](const error_code& error) {
      is_accepting_ = false;
      if (error || shared_.is_stopping) return;
      if (accept_all()) {
        accept_more();
      } else {
        accept_after_pause();
      }
    });
  }

  /// Takes what has arrived. False where the process is short of descriptors or memory: asking again at
  /// once would only burn the processor.
  bool accept_all() {
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
      const int descriptor =
          ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (descriptor >= 0) {
        take(descriptor);
        next_pause_ = kFirstPause;
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return false;
      // Anything else is about that one connection, which is gone.
    }
    return true;
  }

  void accept_after_pause() {
    is_accepting_ = true;
    pause_.expires_after(next_pause_);
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
    pause_.async_wait([this](const error_code& error) {
      is_accepting_ = false;
      if (!error && !shared_.is_stopping) accept_more();
    });
  }

  /// Where all are taken, the connection with the least claim goes: clients that keep theirs open and say
  /// nothing must not keep Prometheus out.
  Slot* free_slot() {
    const auto open =
        std::ranges::find_if(slots_, [](const Slot& slot) { return slot.descriptor < 0; });
    if (open != slots_.end()) return &*open;
    std::shared_ptr<HttpConnection> weakest;
    Slot* taken = nullptr;
    for (Slot& slot : slots_) {
      auto connection = slot.connection.lock();
      if (!connection || (weakest && connection->claim() >= weakest->claim())) continue;
      weakest = std::move(connection);
      taken = &slot;
    }
    if (!weakest) return nullptr;
    weakest->evict();
    if (shared_.options.dropped) shared_.options.dropped(HttpDrop::limit);
    return taken;
  }

  void take(int descriptor) {
    Slot* slot = free_slot();
    tcp::socket socket(context_);
    error_code error;
    if (slot != nullptr) socket.assign(tcp::v4(), descriptor, error);
    if (slot == nullptr || error) {
      ::close(descriptor);
      if (shared_.options.dropped) shared_.options.dropped(HttpDrop::limit);
      return;
    }
    const int on = 1;
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    slot->descriptor = descriptor;
    try {
      const auto connection = make_http_connection(shared_, {std::move(socket), tls_session()},
                                                   [slot] { slot->descriptor = -1; });
      slot->connection = connection;
      connection->start();
    } catch (...) {
      slot->descriptor = -1;
      throw;
    }
  }

  std::unique_ptr<TlsSession> tls_session() {
    const auto& web = shared_.options.web;
    if (!web) return nullptr;
    web->look();
    if (!web->has_tls()) return nullptr;
    auto session = web->session();
    if (!session) throw std::bad_alloc();
    return session;
  }

  void finish() {
    shared_.is_stopping = true;
    error_code ignored;
    listening_ = -1;
    acceptor_.close(ignored);
    pause_.cancel();
    for (Slot& slot : slots_) {
      if (const auto connection = slot.connection.lock()) connection->finish();
    }
  }

  /// What holds descriptors.
  struct Net {
    asio::io_context context{1};  // goes before what its pending operations refer to
    tcp::acceptor acceptor{context};
    asio::steady_timer pause{context};
  };

  HttpShared shared_;
  std::vector<Slot> slots_;
  std::atomic<int> listening_ = -1;
  std::uint16_t port_ = 0;
  UnixName name_;  ///< without an address on ports
  bool is_accepting_ = false;
  std::chrono::milliseconds next_pause_ = kFirstPause;
  std::optional<Identity> identity_;  ///< of what we listen on
  std::atomic<bool> is_left_ = false;
  std::unique_ptr<Net> net_ = std::make_unique<Net>();
  asio::io_context& context_ = net_->context;
  tcp::acceptor& acceptor_ = net_->acceptor;
  asio::steady_timer& pause_ = net_->pause;
  std::promise<void> over_;
  std::future<void> done_ = over_.get_future();
  std::jthread thread_;
};

HttpServer::HttpServer(std::map<std::string, HttpHandler> routes, HttpServerOptions options)
    : impl_(std::make_shared<Impl>(std::move(routes), std::move(options))) {}

HttpServer::~HttpServer() {
  if (is_child_) {
    // The thread does not exist here: it cannot be joined, and what it held may be half-way through.
    new std::shared_ptr<Impl>(std::move(impl_));
    return;
  }
  stop(std::chrono::seconds(1));
}

HttpStart HttpServer::start(const std::string& address, std::uint16_t port, int port_tries) noexcept
    try {
  if (is_child_) return {.error = "this is a forked child"};
  return impl_->start(address, port, port_tries);
} catch (const std::exception& error) {
  return {.error = error.what()};
}

HttpStart HttpServer::start_on_unix(int directory, const std::string& name) noexcept try {
  if (is_child_) return {.error = "this is a forked child"};
  return impl_->start_on_unix(directory, name);
} catch (const std::exception& error) {
  return {.error = error.what()};
}

void HttpServer::stop(std::chrono::milliseconds budget) noexcept try {
  if (!is_child_) impl_->stop(budget);
} catch (...) {  // out of memory for the message to the thread: it goes with the process
}

bool HttpServer::leave_if_closed() noexcept { return !is_child_ && impl_->leave_if_closed(); }

void HttpServer::close_in_child() noexcept {
  is_child_ = true;
  impl_->close_in_child();
}

std::uint16_t HttpServer::port() const noexcept { return impl_->port(); }

}  // namespace gradvane::exporters
