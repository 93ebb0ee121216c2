#pragma once
// Shared memory in which the ranks of one node meet: each puts something down and takes what all others have.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradvane::agent::ranks {

/// Where this process can meet others: the same text if they have the same kernel and user, see each other's process
/// numbers, and share memory. Like no other if that cannot be found out.
[[nodiscard]] std::string this_node();

/// Belongs to one thread of each rank. Ranks of one process each need one of their own. Calls on all ranks
/// pair up by their number: the n-th tell() of each rank meets the n-th of every other.
class NodeBoard {
 public:
  /// Makes the memory, private to the user, with place for `bytes` of each rank, and returns its name. Throws
  /// std::system_error, e.g. where the system's shared memory is full or is not there.
  [[nodiscard]] static std::string make(int ranks, std::size_t bytes);

  /// So that nothing is left, whoever dies: once all ranks have joined, or if one of them could not.
  static void remove(const std::string& name) noexcept;

  /// As rank `rank`, with the numbers of make(). Throws std::system_error, and std::runtime_error if what lies
  /// there is not such a board, of this version and this user.
  NodeBoard(const std::string& name, int rank, int ranks, std::size_t bytes);
  /// The rank leaves. In a forked child it does not.
  ~NodeBoard();
  NodeBoard(NodeBoard&& other) noexcept;
  NodeBoard& operator=(NodeBoard&&) = delete;

  /// Puts this rank's next record down, of which `bytes` are kept, and wakes who waits for it. The record before
  /// it must have met all others.
  void tell(std::string_view record) noexcept;

  /// Whether all ranks have told as often as this one. Waits for them, for `patience` at most; a signal ends the
  /// wait early. Makes a system call only if it has to sleep.
  [[nodiscard]] bool wait(std::chrono::milliseconds patience) noexcept;

  /// What a rank told, `bytes` of it. After a wait() that was true, and before the next tell().
  [[nodiscard]] std::string told_by(int rank) const;

  /// The lowest rank that has not told as often as this one and has left, or whose process has ended.
  [[nodiscard]] std::optional<int> gone() const;

  [[nodiscard]] int ranks() const noexcept { return ranks_; }

 private:
  struct Memory;
  struct Place;

  [[nodiscard]] Place& place(int rank) const noexcept;
  [[nodiscard]] char* record(int rank, std::uint64_t sequence) const noexcept;
  [[nodiscard]] bool all_have_told() const noexcept;

  Memory* memory_ = nullptr;
  int rank_ = 0;
  int ranks_ = 0;
  std::size_t bytes_ = 0;
  bool spins_ = false;  ///< before it sleeps: there is a core for each rank
  std::uint64_t sequence_ = 0;
};

}  // namespace gradvane::agent::ranks
