#include "exporters/node/node_port.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "exporters/files/file_signals.hpp"
#include "exporters/files/private_directory.hpp"
#include "exporters/files/safe_file.hpp"
#include "exporters/http/unix_address.hpp"
#include "exporters/http/unix_socket.hpp"
#include "exporters/node/rank_sockets.hpp"
#include "record/run/process_start.hpp"

namespace gradvane::exporters {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kStartWithin{2};
constexpr std::chrono::milliseconds kStartPause{10};
constexpr std::chrono::milliseconds kLookEvery{250};
constexpr std::chrono::milliseconds kMutexPatience{200};
constexpr std::size_t kLongestFile = 4096;

}  // namespace

NodePort::NodePort(EndpointOptions endpoint, std::int32_t rank)
    : options_(std::move(endpoint)),
      node_(word_of_node()),
      socket_(rank_socket(rank, node_)),
      lock_name_("node." + node_ + ".lock"),
      file_name_("node." + node_ + ".json") {}

EndpointStart NodePort::start() {
  const std::lock_guard guard(mutex_);
  if (!has_unix_sockets()) return {.error = "there is no /proc"};
  auto opened = open_named_directory(options_.run_directory, ::geteuid(), Missing::stays);
  directory_ = std::move(opened.descriptor);
  if (!directory_.is_open()) return {.error = opened.error};
  const auto until = Clock::now() + kStartWithin;
  while (true) {
    const Locked locked = lock_.take(directory_.get(), lock_name_, ::geteuid());
    const auto there = holder();
    if (locked == Locked::yes) {
      // The others have the address already, so it must stay.
      if (!there || !has_other_rank()) return place_ = serve(options_);
      const EndpointStart kept{.url = there->url, .port = there->port, .error = {}};
      place_ = serve_at(kept);
      if (!place_.error.empty()) place_ = kept;
      return place_;
    }
    if (locked != Locked::busy)
      return {.error = lock_name_ + " cannot be locked: " + std::strerror(errno)};
    if (there && there->is_alive)
      return place_ = {.url = there->url, .port = there->port, .error = {}};
    if (Clock::now() >= until)
      return {.error = "the rank that holds " + lock_name_ + " does not say its port"};
    std::this_thread::sleep_for(kStartPause);
  }
}

bool NodePort::look() noexcept try {
  const auto now = Clock::now();
  if (now < next_look_) return false;
  next_look_ = now + kLookEvery;
  const std::unique_lock guard(mutex_, std::try_to_lock);
  if (!guard || is_stopped_ || is_serving() || place_.url.empty() || !directory_.is_open())
    return false;
  if (lock_.take(directory_.get(), lock_name_, ::geteuid()) != Locked::yes) return false;
  return serve_at(place_).error.empty();
} catch (...) {  // no memory: another rank may have some, or a later look
  return false;
}

/// With the lock held; gives it back if it fails.
EndpointStart NodePort::serve(const EndpointOptions& options) {
  auto endpoint = std::make_unique<NodeEndpoint>(node_);
  EndpointStart started = endpoint->start(options);
  if (!started.error.empty()) {
    lock_.release(directory_.get());
    return started;
  }
  endpoint_ = std::move(endpoint);
  serving_ = endpoint_.get();
  place_ = started;
  write_file();
  return started;
}

/// As serve(), where the ranks that are here already say that their port is.
EndpointStart NodePort::serve_at(const EndpointStart& place) {
  EndpointOptions options = options_;
  options.port = place.port;
  options.port_tries = 1;
  if (is_unix_address(place.url)) options.address = place.url;
  return serve(options);
}

/// Without the file a rank that comes later gets a port of its own.
void NodePort::write_file() const {
  const auto began = record::process_start_ticks(::getpid());
  const Json json{{"url", place_.url},
                  {"port", place_.port},
                  {"pid", ::getpid()},
                  {"start_ticks", began.value_or(0)}};
  const std::string text = json.dump() + '\n';
  const FileSignalsBlocked signals;
  const std::array<std::string_view, 1> parts{text};
  (void)write_whole_file(directory_.get(), file_name_, parts, 0600);
}

std::optional<NodePort::Holder> NodePort::holder() const {
  const auto text = read_regular(directory_.get(), file_name_, kLongestFile, ::geteuid());
  if (!text) return std::nullopt;
  try {
    const Json json = Json::parse(*text);
    Holder holder{.url = json.at("url"), .port = json.at("port")};
    if (holder.port == 0 && !is_unix_address(holder.url)) return std::nullopt;
    const auto began = record::process_start_ticks(json.at("pid").get<pid_t>());
    holder.is_alive = began && *began == json.at("start_ticks").get<std::uint64_t>();
    return holder;
  } catch (const Json::exception&) {  // nothing that a rank wrote
    return std::nullopt;
  }
}

/// Someone listens on a socket here. Our own is not open yet, or does not matter: it has told nobody the address.
bool NodePort::has_other_rank() const {
  const auto ranks = ranks_with_socket(directory_.get(), node_);
  return std::ranges::any_of(ranks, [&](std::int32_t rank) {
    return OwnDescriptor(connect_to_unix(directory_.get(), rank_socket(rank, node_))).is_open();
  });
}

void NodePort::stop(std::chrono::milliseconds budget) noexcept {
  // Not a timed_mutex: ThreadSanitizer of GCC 12 does not know how it is taken.
  std::unique_lock guard(mutex_, std::try_to_lock);
  for (const auto until = Clock::now() + kMutexPatience; !guard && Clock::now() < until;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    (void)guard.try_lock();
  }
  if (!guard || std::exchange(is_stopped_, true) || !directory_.is_open()) return;
  ::unlinkat(directory_.get(), socket_.c_str(), 0);
  if (!is_serving()) return;
  endpoint_->stop(budget);
  give_back();
}

/// The file goes first: who takes the lock next writes its own.
void NodePort::give_back() noexcept {
  serving_ = nullptr;
  if (!directory_.is_open()) return;
  ::unlinkat(directory_.get(), file_name_.c_str(), 0);
  lock_.release(directory_.get());
}

bool NodePort::leave_if_closed() noexcept {
  const std::unique_lock guard(mutex_, std::try_to_lock);
  if (!guard || !is_serving() || !endpoint_->leave_if_closed()) return false;
  is_stopped_ = true;
  give_back();
  return true;
}

void NodePort::close_in_child() noexcept {
  if (NodeEndpoint* endpoint = serving_.load()) endpoint->close_in_child();
}

}  // namespace gradvane::exporters
