#pragma once
// Where the records of all ranks of a C++ program meet in a step.
#include <chrono>
#include <cstddef>
#include <gradvane/ranks.hpp>
#include <optional>
#include <string>
#include <vector>

#include "agent/ranks/node_board.hpp"

namespace gradvane::agent::ranks {

/// In shared memory if all ranks are on one node, else by the program's own AllGather. Belongs to the thread
/// that trains.
class Meeting {
 public:
  static constexpr std::chrono::minutes kPatience{10};  ///< for the slowest rank: as NCCL waits

  /// `patience` is for shared memory; the AllGather has its own.
  explicit Meeting(AllGather gather, std::chrono::milliseconds patience = kPatience);

  /// The records of all ranks, by rank. All ranks call it equally often, with records of equal size.
  /// Throws std::runtime_error if a rank has gone or does not come in time, and what the AllGather
  /// throws. Do not call it again then.
  [[nodiscard]] std::vector<std::string> exchange(const std::string& record);

 private:
  [[nodiscard]] std::vector<std::string> gather(const std::string& mine);
  void meet_on_node(std::size_t bytes);
  [[nodiscard]] std::vector<std::string> exchange_on(NodeBoard& board,
                                                     const std::string& record) const;

  AllGather gather_;
  std::chrono::milliseconds patience_;
  bool has_met_ = false;
  std::optional<NodeBoard> board_;
};

}  // namespace gradvane::agent::ranks
