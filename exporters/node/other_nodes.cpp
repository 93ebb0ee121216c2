#include "exporters/node/other_nodes.hpp"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include "exporters/client/http_connector.hpp"
#include "exporters/client/http_get.hpp"
#include "exporters/client/web_place.hpp"
#include "exporters/signals_blocked.hpp"

namespace gradvane::exporters {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kLongestAnswer = std::uint64_t{256} << 10;
constexpr std::string_view kHttp = "http://";
constexpr std::chrono::milliseconds kGrace{100};  ///< for a thread to end

}  // namespace

class OtherNodes::Impl : public std::enable_shared_from_this<OtherNodes::Impl> {
 public:
  explicit Impl(Settings settings) : settings_(std::move(settings)) {}

  std::map<std::string, Answer> look(const std::vector<std::string>& urls) {
    const std::lock_guard lock(mutex_);
    if (is_ending_) return {};
    const auto now = Clock::now();
    if (now > looked_ + settings_.looked_at) nodes_.clear();  // their answers are old
    looked_ = now;
    std::erase_if(nodes_, [&](const auto& node) {
      return std::ranges::find(urls, node.first) == urls.end();
    });
    for (const std::string& url : urls)
      if (url.starts_with(kHttp) && !nodes_.contains(url)) add(url);
    std::map<std::string, Answer> known;
    for (const auto& [url, node] : nodes_)
      if (node.answer) known[url] = *node.answer;
    if (!nodes_.empty()) wake();
    return known;
  }

  void finish(std::chrono::milliseconds budget) {
    const auto until = Clock::now() + budget;
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(is_ending_, true)) return;
      if (connector_) connector_->hurry(until);
    }
    if (!thread_.joinable()) return;
    changed_.notify_all();
    if (done_.wait_until(until + kGrace) == std::future_status::ready) {
      thread_.join();
    } else {
      thread_.detach();  // it waits for the addresses of a host, which cannot be hurried
    }
  }

 private:
  struct Node {
    WebPlace place;
    std::vector<std::string> addresses;  ///< that are known, the one to be tried first in front
    std::optional<Answer> answer;
    Clock::time_point next{};
    std::chrono::milliseconds pause{0};
  };

  void add(const std::string& url) {
    try {
      nodes_[url].place = parse_web_place(std::string_view(url).substr(kHttp.size()), 80);
    } catch (const std::invalid_argument&) {  // nothing that a rank wrote
      nodes_.erase(url);
    }
  }

  /// Under the lock.
  void wake() {
    if (!thread_.joinable()) {
      const SignalsBlocked for_the_thread_to_inherit;
      thread_ = std::jthread([self = shared_from_this()] { self->run(); });
    }
    changed_.notify_all();
  }

  void run() noexcept {
    pthread_setname_np(pthread_self(), "gradvane-nodes");
    std::unique_lock lock(mutex_);
    while (!is_ending_) {
      try {
        ask_or_wait(lock);
      } catch (...) {  // no memory: later there may be
        if (!lock.owns_lock()) lock.lock();
        connector_.reset();
        changed_.wait_for(lock, settings_.every);
      }
    }
    nodes_.clear();
    lock.unlock();
    over_.set_value();
  }

  void ask_or_wait(std::unique_lock<std::mutex>& lock) {
    const auto now = Clock::now();
    const auto next =
        std::ranges::min_element(nodes_, {}, [](const auto& node) { return node.second.next; });
    if (next == nodes_.end() || now > looked_ + settings_.looked_at) {
      // With a time, which no one waits for: the untimed wait of GCC 12 is in no C++ library before its own, and
      // the wheel could not be installed on RHEL 9.
      changed_.wait_for(lock, settings_.looked_at);
      return;
    }
    if (next->second.next > now) {
      changed_.wait_until(lock, next->second.next);
      return;
    }
    const std::string url = next->first;
    const WebPlace place = next->second.place;
    std::vector<std::string> addresses = next->second.addresses;
    next->second.next = now + settings_.every;  // whatever comes of it: the others have their turn
    lock.unlock();
    // Before there are descriptors: it may take long.
    if (addresses.empty()) addresses = settings_.resolve(place.host);
    HttpFetched fetched = ask(place, addresses);
    lock.lock();
    connector_.reset();
    if (const auto node = nodes_.find(url); node != nodes_.end())
      note(node->second, std::move(addresses), std::move(fetched));
  }

  /// The connection is of this question alone: its descriptors are not to lie about for as long as the run lasts.
  HttpFetched ask(const WebPlace& place, const std::vector<std::string>& addresses) {
    auto connector = std::make_shared<HttpConnector>(
        place, [addresses](const std::string&) { return addresses; });
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_) return {};
      connector_ = connector;
    }
    return http_get(*connector, place.authority, kOwnRanks, settings_.token, kLongestAnswer,
                    Clock::now() + settings_.deadline);
  }

  void note(Node& node, std::vector<std::string> addresses, HttpFetched fetched) const {
    const bool is_there = fetched.status == 200;
    node.answer =
        Answer{.is_there = is_there, .ranks = is_there ? std::move(fetched.body) : std::string()};
    node.pause =
        is_there ? settings_.every : std::clamp(2 * node.pause, settings_.every, settings_.longest);
    node.next = Clock::now() + node.pause;
    // Another one of them may answer; and the host may have moved.
    if (!is_there && !addresses.empty()) std::ranges::rotate(addresses, addresses.begin() + 1);
    if (node.pause == settings_.longest) addresses.clear();
    node.addresses = std::move(addresses);
  }

  Settings settings_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Node> nodes_;         ///< by URL
  std::shared_ptr<HttpConnector> connector_;  ///< of the question that the thread asks now
  Clock::time_point looked_{};
  bool is_ending_ = false;
  std::promise<void> over_;
  std::future<void> done_ = over_.get_future();
  std::jthread thread_;
};

OtherNodes::OtherNodes(Settings settings) : impl_(std::make_shared<Impl>(std::move(settings))) {}

OtherNodes::~OtherNodes() { finish(std::chrono::milliseconds(0)); }

std::map<std::string, OtherNodes::Answer> OtherNodes::look(const std::vector<std::string>& urls) {
  return impl_->look(urls);
}

void OtherNodes::finish(std::chrono::milliseconds budget) noexcept {
  if (impl_ == nullptr) return;
  try {
    impl_->finish(budget);
  } catch (...) {  // no memory to say so: the thread sees it with the next deadline
  }
}

void OtherNodes::leave_to_parent() noexcept { new std::shared_ptr<Impl>(std::move(impl_)); }

}  // namespace gradvane::exporters
