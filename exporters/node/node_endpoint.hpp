#pragma once
// One HTTP endpoint for all ranks of a run on this node, each of which answers on a unix socket of its own.
//
//   /metrics      of all ranks here, as one exposition
//   /rank/N/...   what rank N answers to /...
//   /...          what the lowest rank here answers; /api/v1/ranks says how each rank is, too, those of other nodes
//                 as far as these answer
//   /api/v1/ranks/here  the same of the ranks of this node alone, for other nodes
#include <chrono>
#include <memory>
#include <string>

#include "exporters/api/endpoint.hpp"
#include "exporters/http/http_server.hpp"

namespace gradvane::exporters {

/// Knows the ranks by their sockets alone, and asks them anew for each request. A rank that does not answer in time is
/// left out of /metrics. Until it answers it gets less time, except for each eighth question: a rank whose process is
/// stopped must not make all scrapes late.
/// Threading: as Endpoint. Its own thread asks the ranks, and one of OtherNodes the other nodes.
class NodeEndpoint {
 public:
  struct Patience {
    std::chrono::milliseconds usual{5000};     ///< for a rank's answer; Prometheus waits 10 s
    std::chrono::milliseconds of_silent{250};  ///< for that of a rank that did not answer lately
    std::chrono::milliseconds others_every{2000};  ///< between two questions to another node
  };

  /// @param node  word_of_node()
  NodeEndpoint(std::string node, Patience patience);
  explicit NodeEndpoint(std::string node) : NodeEndpoint(std::move(node), Patience()) {}

  /// Needs `run_directory`, where the sockets are. To be called once. Does not throw.
  [[nodiscard]] EndpointStart start(const EndpointOptions& options) noexcept;
  void stop(std::chrono::milliseconds budget) noexcept;
  [[nodiscard]] bool leave_if_closed() noexcept;
  /// In a forked child.
  void close_in_child() noexcept;

 private:
  class Ranks;
  std::shared_ptr<Ranks> ranks_;  ///< the server's handler holds it too
  std::unique_ptr<HttpServer> server_;
};

}  // namespace gradvane::exporters
