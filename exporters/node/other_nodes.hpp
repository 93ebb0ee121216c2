#pragma once
// How the ranks on other machines are, as the endpoints there say.
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exporters/client/resolve_host.hpp"

namespace gradvane::exporters {

/// What a node asks another one: /api/v1/ranks of its own ranks alone.
inline constexpr const char* kOwnRanks = "/api/v1/ranks/here";

/// Asks the other nodes while its list is looked at, and for a while after, one after the other, on a thread of its own. The
/// first look starts the thread; between looks that are far apart it sleeps. A node that does not answer is asked ever less often.
/// Threading: look() from one thread; finish() and leave_to_parent() from one, which may be another.
class OtherNodes {
 public:
  struct Settings {
    std::string token = {};                       ///< shown to the others; empty: nothing
    std::chrono::milliseconds every{2000};        ///< between two questions to a node
    std::chrono::milliseconds longest{60'000};    ///< the same, to one that does not answer
    std::chrono::milliseconds deadline{1000};     ///< for an answer
    std::chrono::milliseconds looked_at{15'000};  ///< so long after the last look it goes on
    ResolveHost resolve = resolve_host;
  };
  /// What came of the latest question to a node.
  struct Answer {
    bool is_there = false;
    std::string ranks = {};  ///< up to 256 KiB, of any content
  };

  explicit OtherNodes(Settings settings);
  /// As finish(), without waiting.
  ~OtherNodes();
  OtherNodes(const OtherNodes&) = delete;  // owns a thread
  OtherNodes& operator=(const OtherNodes&) = delete;

  /// The latest answers of the nodes with these URLs; of one that has not been asked yet, none. Never waits. Those with TLS
  /// are not asked. Throws std::bad_alloc, and std::system_error if no thread can be started.
  [[nodiscard]] std::map<std::string, Answer> look(const std::vector<std::string>& urls);

  /// Ends the thread within `budget`. If it waits for the addresses of a host, it is left behind. Idempotent.
  void finish(std::chrono::milliseconds budget) noexcept;
  /// In a forked child, where the thread does not exist. The object is inert afterwards.
  void leave_to_parent() noexcept;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  ///< the thread holds it too
};

}  // namespace gradvane::exporters
