#include "agent/ranks/meeting.hpp"

#include <algorithm>
#include <array>
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

/// `ranks`: how many there are; 0: that is to be found out.
std::vector<std::string> gathered(const AllGather& gather, const std::string& mine,
                                  std::size_t ranks) {
  std::vector<std::string> all = gather(mine);
  const auto fits = [&](const std::string& one) { return one.size() == mine.size(); };
  if (all.empty() || (ranks > 0 && all.size() != ranks) || !std::ranges::all_of(all, fits))
    throw std::runtime_error("the AllGather has not returned " + std::to_string(mine.size()) +
                             " bytes of each rank");
  return all;
}

// The first byte of a node's block, and of the answer that its leader brings.
constexpr char kComplete = 'y';
constexpr char kIncomplete = 'n';

}  // namespace

std::string_view name_of(MeetingPlace place) noexcept {
  static constexpr std::array<std::string_view, 4> kNames{"not yet", "everywhere", "node", "nodes"};
  return kNames[static_cast<std::size_t>(place)];
}

Meeting::Meeting(AllGather gather, GatherAmong among, MeetingOptions options)
    : gather_(std::move(gather)), among_(std::move(among)), options_(std::move(options)) {}

MeetingPlace Meeting::place() const noexcept {
  if (!has_met_) return MeetingPlace::not_yet;
  if (!board_) return MeetingPlace::everywhere;
  return answer_ ? MeetingPlace::nodes : MeetingPlace::node;
}

std::vector<std::string> Meeting::exchange(const std::string& record) {
  if (std::exchange(is_broken_, true))
    throw std::runtime_error("ranks do not meet any more: an exchange before this one has failed");
  std::vector<std::string> all = exchange_now(record);
  is_broken_ = false;
  return all;
}

std::vector<std::string> Meeting::exchange_now(const std::string& record) {
  if (!has_met_) meet(record.size());
  has_met_ = true;
  if (!board_) return gathered(gather_, record, ranks_);
  board_->tell(record);
  if (answer_) return exchange_over_nodes();
  wait_for_all(*board_);
  std::vector<std::string> all;
  for (int rank = 0; rank < board_->ranks(); ++rank) all.push_back(board_->told_by(rank));
  return all;
}

/// Leaves board_ empty on all ranks, or on none. So it is with answer_, if there are several nodes.
void Meeting::meet(std::size_t bytes) {
  const Place mine{exporters::random_word(), options_.node};
  std::vector<Place> places;
  for (const std::string& told :
       gathered(gather_, padded(mine.own + '\n' + mine.node, kPlaceBytes), 0))
    places.push_back(place_of(told));
  const auto me = std::ranges::find(places, mine.own, &Place::own);
  if (me == places.end())
    throw std::runtime_error("the AllGather has not returned what this rank gave");
  rank_ = static_cast<int>(me - places.begin());
  ranks_ = places.size();
  bytes_ = bytes;

  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const auto name = std::ranges::find(names, places[rank].node);
    const auto node = static_cast<std::size_t>(name - names.begin());
    if (name == names.end()) {
      names.push_back(places[rank].node);
      nodes_.emplace_back();
    }
    nodes_[node].push_back(static_cast<int>(rank));
  }
  if (nodes_.size() == places.size() || (nodes_.size() > 1 && !among_)) return;
  mine_ = *std::ranges::find_if(nodes_, [this](const std::vector<int>& ranks) {
    return std::ranges::count(ranks, rank_) > 0;
  });

  share(board_, bytes);
  if (!board_ || nodes_.size() == 1) return;
  share(answer_, 1 + nodes_.size() * block_bytes());
  if (!answer_) {
    board_.reset();
    return;
  }
  std::vector<int> leaders;
  for (const std::vector<int>& ranks : nodes_) leaders.push_back(ranks.front());
  if (!leads()) return;
  leaders_ = among_(leaders);
  if (!leaders_) throw std::runtime_error("the GatherAmong has not returned a function");
}

/// Between the ranks of this node. It stays absent on all ranks unless it could be had on all nodes.
void Meeting::share(std::optional<NodeBoard>& board, std::size_t bytes) {
  const auto ranks = static_cast<int>(mine_.size());
  BoardName made;
  if (leads()) {
    try {
      made.name = NodeBoard::make(ranks, bytes);
    } catch (const std::exception&) {  // small containers may have no shared memory
    }
  }
  const auto names = gathered(gather_, padded(made.name, kPlaceBytes), ranks_);
  const std::string name = unpadded(names[static_cast<std::size_t>(mine_.front())]);
  if (!name.empty()) {
    try {
      const auto place = std::ranges::find(mine_, rank_) - mine_.begin();
      board.emplace(name, static_cast<int>(place), ranks, bytes);
    } catch (const std::exception&) {  // no rank uses it then
    }
  }
  const auto joined = gathered(gather_, std::string(1, board ? kComplete : kIncomplete), ranks_);
  if (!std::ranges::all_of(joined, [](const std::string& one) { return one[0] == kComplete; }))
    board.reset();
}

void Meeting::wait_for_all(NodeBoard& board) const {
  const auto until = steady_clock::now() + options_.patience;
  while (!board.wait(kSlice)) {
    const auto gone = board.gone();
    if (gone && !board.wait(std::chrono::milliseconds(0)))
      throw std::runtime_error("rank " + std::to_string(mine_[static_cast<std::size_t>(*gone)]) +
                               " has left");
    if (steady_clock::now() > until) {
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(options_.patience);
      throw std::runtime_error("no word from a rank for " + std::to_string(seconds.count()) + " s");
    }
    if (options_.in_waits) options_.in_waits();
  }
}

std::vector<std::string> Meeting::exchange_over_nodes() {
  if (!leads()) {
    wait_for_all(*board_);
    answer_->tell({});
    wait_for_all(*answer_);
    return by_rank(answer_->told_by(0));
  }
  // If it comes to nothing, the others of this node need not wait for it.
  std::string answer(1, kIncomplete);
  try {
    const auto blocks = gathered(leaders_, block_of_node(), nodes_.size());
    answer[0] = kComplete;
    for (const std::string& block : blocks) answer += block;
  } catch (...) {
    answer_->tell(answer);
    throw;
  }
  answer_->tell(answer);
  return by_rank(answer);
}

/// Also where a rank of this node is missing: the other nodes wait for it.
std::string Meeting::block_of_node() {
  std::string block(1, kIncomplete);
  try {
    wait_for_all(*board_);
    block[0] = kComplete;
    for (int place = 0; place < board_->ranks(); ++place) block += board_->told_by(place);
  } catch (const std::runtime_error& error) {  // by_rank() says it on all nodes
    block = kIncomplete + std::string(error.what());
  }
  block.resize(block_bytes(), '\0');
  return block;
}

std::vector<std::string> Meeting::by_rank(const std::string& answer) const {
  if (answer.size() < 1 + nodes_.size() * block_bytes() || answer[0] != kComplete)
    throw std::runtime_error("the ranks of other nodes could not be reached");
  std::vector<std::string> all(ranks_);
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    const std::vector<int>& ranks = nodes_[node];
    const std::string block = answer.substr(1 + node * block_bytes(), block_bytes());
    if (block[0] != kComplete) throw std::runtime_error(unpadded(block.substr(1)));
    for (std::size_t place = 0; place < ranks.size(); ++place)
      all[static_cast<std::size_t>(ranks[place])] = block.substr(1 + place * bytes_, bytes_);
  }
  return all;
}

/// Of one node: whether its ranks are all there, and as many records as the largest node has.
std::size_t Meeting::block_bytes() const {
  std::size_t most = 0;
  for (const std::vector<int>& ranks : nodes_) most = std::max(most, ranks.size());
  return 1 + most * bytes_;
}

}  // namespace gradvane::agent::ranks
