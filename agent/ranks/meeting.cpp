#include "agent/ranks/meeting.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "exporters/files/safe_file.hpp"

namespace gradvane::agent::ranks {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kPlaceBytes = 256;
constexpr std::chrono::milliseconds kSlice{
    500};  // until the processes of missing ranks are looked for

/// Who and where a rank is: the first line is its own alone, the second is the same for the ranks
/// of a node.
struct Place {
  std::string own;
  std::string node;
};

std::string padded(std::string text, std::size_t bytes) {
  if (text.size() > bytes) throw std::runtime_error("the name of a node is too long");
  text.resize(bytes, '\0');
  return text;
}

/// Removes the name of a board. The ranks that have joined keep it.
struct BoardName {
  std::string name{};
  BoardName() = default;
  BoardName(const BoardName&) = delete;
  BoardName& operator=(const BoardName&) = delete;
  ~BoardName() {
    if (!name.empty()) NodeBoard::remove(name);
  }
};

std::string unpadded(const std::string& text) { return text.substr(0, text.find('\0')); }

Place place_of(const std::string& told) {
  const std::string text = unpadded(told);
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) throw std::runtime_error("a rank has told what cannot be read");
  return {text.substr(0, end), text.substr(end + 1)};
}

}  // namespace

Meeting::Meeting(AllGather gather, std::chrono::milliseconds patience)
    : gather_(std::move(gather)), patience_(patience) {}

std::vector<std::string> Meeting::exchange(const std::string& record) {
  if (!std::exchange(has_met_, true)) meet_on_node(record.size());
  return board_ ? exchange_on(*board_, record) : gather(record);
}

std::vector<std::string> Meeting::gather(const std::string& mine) {
  std::vector<std::string> all = gather_(mine);
  const auto fits = [&](const std::string& one) { return one.size() == mine.size(); };
  if (all.empty() || !std::ranges::all_of(all, fits))
    throw std::runtime_error("the AllGather has not returned " + std::to_string(mine.size()) +
                             " bytes of each rank");
  return all;
}

/// Leaves board_ empty on all ranks, or on none.
void Meeting::meet_on_node(std::size_t bytes) {
  const Place mine{exporters::random_word(), this_node()};
  std::vector<Place> places;
  for (const std::string& told : gather(padded(mine.own + '\n' + mine.node, kPlaceBytes)))
    places.push_back(place_of(told));
  const auto me = std::ranges::find(places, mine.own, &Place::own);
  if (me == places.end())
    throw std::runtime_error("the AllGather has not returned what this rank gave");
  if (std::ranges::any_of(places, [&](const Place& one) { return one.node != mine.node; })) return;

  const int rank = static_cast<int>(me - places.begin());
  const int ranks = static_cast<int>(places.size());
  BoardName made;
  if (rank == 0) {
    try {
      made.name = NodeBoard::make(ranks, bytes);
    } catch (const std::exception&) {  // small containers may have no shared memory
    }
  }
  const std::string name = unpadded(gather(padded(made.name, kPlaceBytes)).front());
  if (!name.empty()) {
    try {
      board_.emplace(name, rank, ranks, bytes);
    } catch (const std::exception&) {  // no rank uses it then
    }
  }
  const auto joined = gather(std::string(1, board_ ? 'y' : 'n'));
  if (std::ranges::count(joined, "y") != ranks) board_.reset();
}

std::vector<std::string> Meeting::exchange_on(NodeBoard& board, const std::string& record) const {
  board.tell(record);
  const auto until = steady_clock::now() + patience_;
  while (!board.wait(kSlice)) {
    const auto gone = board.gone();
    if (gone && !board.wait(std::chrono::milliseconds(0)))
      throw std::runtime_error("rank " + std::to_string(*gone) + " has left");
    if (steady_clock::now() > until)
      throw std::runtime_error(
          "no word from a rank for " +
          std::to_string(std::chrono::duration_cast<std::chrono::seconds>(patience_).count()) +
          " s");
  }
  std::vector<std::string> all;
  for (int rank = 0; rank < board.ranks(); ++rank) all.push_back(board.told_by(rank));
  return all;
}

}  // namespace gradvane::agent::ranks
