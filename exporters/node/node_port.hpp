#pragma once
// The one port of a node: one rank of the run serves it for all, and another takes over when that one is gone.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "exporters/files/file_lock.hpp"
#include "exporters/files/own_descriptor.hpp"
#include "exporters/node/node_endpoint.hpp"

namespace gradvane::exporters {

/// In the run directory lie, for each node:
///   node.<word>.lock   held by the rank that serves; the kernel frees it when that rank ends, however it ends
///   node.<word>.json   url, port, pid and start of that rank, for ranks that come later
/// The "port" may be a unix socket: then its number is 0, and url is unix:/path.
///
/// Threading: start() and look() from one thread; stop() from any. Nothing throws but start(), std::bad_alloc.
class NodePort {
 public:
  /// @param endpoint  as for an endpoint of one rank; its port is the node's
  NodePort(EndpointOptions endpoint, std::int32_t rank);
  ~NodePort() { stop(std::chrono::milliseconds(0)); }
  NodePort(const NodePort&) = delete;  // holds a lock
  NodePort& operator=(const NodePort&) = delete;

  /// Serves the port, or learns which rank does. Waits for that at most two seconds. To be called once.
  [[nodiscard]] EndpointStart start();

  /// The rank that served the port is gone, and this one serves it now. To be called often: looks four times a second.
  [[nodiscard]] bool look() noexcept;

  [[nodiscard]] bool is_serving() const noexcept { return serving_.load() != nullptr; }
  /// Name in the run directory of the unix socket on which this rank has to answer.
  [[nodiscard]] const std::string& socket() const noexcept { return socket_; }

  /// As Endpoint's. The lock is given back, and the name of the rank's socket is removed.
  void stop(std::chrono::milliseconds budget) noexcept;
  /// The program has closed the descriptors of the server: this rank does not serve any more, and never will again.
  [[nodiscard]] bool leave_if_closed() noexcept;
  /// In a forked child.
  void close_in_child() noexcept;

 private:
  /// What the file says of the rank that serves.
  struct Holder {
    std::string url;
    std::uint16_t port = 0;  ///< 0: url is that of a unix socket
    bool is_alive = false;
  };

  [[nodiscard]] std::optional<Holder> holder() const;
  [[nodiscard]] bool has_other_rank() const;
  EndpointStart serve(const EndpointOptions& options);
  EndpointStart serve_at(const EndpointStart& place);
  void write_file() const;
  void give_back() noexcept;

  EndpointOptions options_;
  std::string node_;
  std::string socket_;
  std::string lock_name_;
  std::string file_name_;
  std::mutex mutex_;  ///< a look that hangs in a file system must not keep the end from coming
  OwnDescriptor directory_;
  FileLock lock_;
  EndpointStart place_;  ///< from start() on
  std::unique_ptr<NodeEndpoint> endpoint_;
  std::atomic<NodeEndpoint*> serving_ = nullptr;
  std::chrono::steady_clock::time_point next_look_;
  bool is_stopped_ = false;
};

}  // namespace gradvane::exporters
