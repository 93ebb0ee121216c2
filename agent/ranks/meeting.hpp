#pragma once
// Where the records of all ranks meet in a step.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gradvane/ranks.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/ranks/node_board.hpp"

namespace gradvane::agent::ranks {

enum class MeetingPlace : std::uint8_t { not_yet, everywhere, node, nodes };
[[nodiscard]] std::string_view name_of(MeetingPlace place) noexcept;

struct MeetingOptions {
  /// For the slowest rank, as NCCL waits. It is for shared memory; an AllGather has its own.
  std::chrono::milliseconds patience = std::chrono::minutes(10);
  std::string node =
      this_node();  ///< the same text on ranks that can share memory, and on no others
  std::function<void()> in_waits =
      {};  ///< called twice a second while it waits; may throw to end it
};

/// In shared memory on a node. Between nodes by the program's own AllGather: by the first rank of each node
/// if the program can make one for these, else by all ranks. Belongs to the thread that trains.
class Meeting {
 public:
  /// `among` may be empty.
  explicit Meeting(AllGather gather, GatherAmong among = {}, MeetingOptions options = {});

  /// The records of all ranks, by rank. All ranks call it equally often, with records of equal size.
  /// Throws std::runtime_error if a rank has gone or does not come in time, and what the AllGather
  /// throws. Every later call throws then.
  [[nodiscard]] std::vector<std::string> exchange(const std::string& record);

  [[nodiscard]] MeetingPlace place() const noexcept;

 private:
  [[nodiscard]] std::vector<std::string> exchange_now(const std::string& record);
  void meet(std::size_t bytes);
  [[nodiscard]] bool leads() const noexcept { return rank_ == mine_.front(); }
  void share(std::optional<NodeBoard>& board, std::size_t bytes);
  void wait_for_all(NodeBoard& board) const;
  [[nodiscard]] std::vector<std::string> exchange_over_nodes();
  [[nodiscard]] std::string block_of_node();
  [[nodiscard]] std::vector<std::string> by_rank(const std::string& answer) const;
  [[nodiscard]] std::size_t block_bytes() const;

  AllGather gather_;
  GatherAmong among_;
  MeetingOptions options_;

  // Known from the first exchange on.
  bool has_met_ = false;
  bool is_broken_ = false;  ///< an exchange has begun and not come to its end
  int rank_ = 0;
  std::size_t ranks_ = 0;
  std::size_t bytes_ = 0;                  ///< of a record
  std::vector<std::vector<int>> nodes_{};  ///< the ranks of each; the first of them leads it
  std::vector<int> mine_{};                ///< those of this node
  std::optional<NodeBoard> board_{};       ///< absent: all ranks meet by gather_
  std::optional<NodeBoard> answer_{};      ///< of several nodes: what the leader brings
  AllGather leaders_{};                    ///< between the leaders; empty on other ranks
};

}  // namespace gradvane::agent::ranks
