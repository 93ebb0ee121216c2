#include "agent/ranks/node_board.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "agent/ranks/rank_record.hpp"

namespace gradvane::agent::ranks {
namespace {

using std::chrono::steady_clock;

constexpr std::uint64_t kBoardMagic = 0x0000'3164'7262'7667;  // "gvbrd1"
constexpr int kMostRanks = 4096;
constexpr int kSpins = 2000;  // some 20 microseconds

/// Two records, by turns: a rank may be one exchange ahead of another, which still reads the one before. It
/// cannot be two ahead, since that takes a record from everyone.
struct alignas(64) Place {
  std::atomic<std::uint64_t> sequence;
  std::atomic<std::int64_t> process;
  std::atomic<std::uint64_t>
      started;  ///< when the process was, since numbers of processes come again
  std::array<std::array<char, kRecordBytes>, 2> records;
};

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// In ticks of the clock since the machine started. Absent if there is no such process, or it has ended and
/// nobody has asked how.
std::optional<std::uint64_t> started_at(std::int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  std::string word;
  for (int field = 3; rest >> word; ++field) {
    if (field == 3 && (word == "Z" || word == "X")) return std::nullopt;
    if (field == 22) return std::stoull(word);
  }
  return std::nullopt;
}

int futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
          const timespec* patience) noexcept {
  return static_cast<int>(syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation,
                                  value, patience, nullptr, 0));
}

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

struct NodeBoard::Memory {
  std::uint64_t magic;
  std::uint32_t ranks;
  std::atomic<std::uint32_t> tells;    ///< of all ranks; who waits sleeps on it
  std::atomic<std::uint32_t> waiting;  ///< ranks that may sleep
  // The places follow.

  [[nodiscard]] static std::size_t bytes(int ranks) {
    return sizeof(Place) * (static_cast<std::size_t>(ranks) + 1);
  }
  [[nodiscard]] Place* places() {
    return reinterpret_cast<Place*>(reinterpret_cast<char*>(this) + sizeof(Place));
  }
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

std::string NodeBoard::make(int ranks) {
  static_assert(sizeof(Memory) <= sizeof(Place));
  if (ranks < 1 || ranks > kMostRanks)
    throw std::invalid_argument("NodeBoard: " + std::to_string(ranks) + " ranks");
  std::random_device random;
  std::ostringstream name;
  name << "/gradvane-" << geteuid() << '-' << std::hex << random() << random();
  const int file = shm_open(name.str().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) fail("shm_open");
  // Taken now: a page that is not there when it is written to would be a SIGBUS.
  const int error = posix_fallocate(file, 0, static_cast<off_t>(Memory::bytes(ranks)));
  void* memory =
      error != 0 ? MAP_FAILED
                 : mmap(nullptr, Memory::bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int why = error != 0 ? error : errno;
  close(file);
  if (memory == MAP_FAILED) {
    remove(name.str());
    errno = why;
    fail("no shared memory");
  }
  auto* board = new (memory) Memory{kBoardMagic, static_cast<std::uint32_t>(ranks), 0, 0};
  for (int rank = 0; rank < ranks; ++rank) new (board->places() + rank) Place{};
  munmap(memory, Memory::bytes(ranks));
  return name.str();
}

void NodeBoard::remove(const std::string& name) noexcept { shm_unlink(name.c_str()); }

NodeBoard::NodeBoard(const std::string& name, int rank, int ranks)
    : rank_(rank),
      ranks_(ranks),
      spins_(std::thread::hardware_concurrency() > static_cast<unsigned>(ranks)) {
  if (rank < 0 || rank >= ranks || ranks > kMostRanks)
    throw std::invalid_argument("NodeBoard: rank " + std::to_string(rank) + " of " +
                                std::to_string(ranks));
  const int file = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (file < 0) fail("shm_open");
  struct stat status{};
  const bool is_ours = fstat(file, &status) == 0 && status.st_uid == geteuid() &&
                       status.st_size == static_cast<off_t>(Memory::bytes(ranks));
  void* memory =
      is_ours ? mmap(nullptr, Memory::bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
              : MAP_FAILED;
  const int why = errno;
  close(file);
  if (!is_ours)
    throw std::runtime_error(name + " is not a board of this user for " + std::to_string(ranks) +
                             " ranks");
  if (memory == MAP_FAILED) {
    errno = why;
    fail("mmap");
  }
  memory_ = static_cast<Memory*>(memory);
  if (memory_->magic != kBoardMagic || memory_->ranks != static_cast<std::uint32_t>(ranks)) {
    munmap(memory, Memory::bytes(ranks));
    throw std::runtime_error(name + " is a board of another version");
  }
  Place& mine = memory_->places()[rank_];
  mine.started.store(started_at(getpid()).value_or(0));
  mine.process.store(getpid());
}

NodeBoard::NodeBoard(NodeBoard&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      rank_(other.rank_),
      ranks_(other.ranks_),
      spins_(other.spins_),
      sequence_(other.sequence_) {}

NodeBoard::~NodeBoard() {
  if (memory_ != nullptr) munmap(memory_, Memory::bytes(ranks_));
}

void NodeBoard::tell(std::string_view record) noexcept {
  Place& mine = memory_->places()[rank_];
  const std::uint64_t sequence = ++sequence_;
  auto& place = mine.records[sequence % 2];
  std::memcpy(place.data(), record.data(), std::min(record.size(), place.size()));
  mine.sequence.store(sequence, std::memory_order_release);
  // Before who waits is looked at: a rank says that it waits first, and then looks at this once more.
  memory_->tells.fetch_add(1);
  if (memory_->waiting.load() != 0) futex(memory_->tells, FUTEX_WAKE, INT32_MAX, nullptr);
}

bool NodeBoard::all_have_told() const noexcept {
  const Place* places = memory_->places();
  for (int rank = 0; rank < ranks_; ++rank)
    if (places[rank].sequence.load(std::memory_order_acquire) < sequence_) return false;
  return true;
}

bool NodeBoard::wait(std::chrono::milliseconds patience) noexcept {
  for (int spin = 0; spins_ && spin < kSpins; ++spin) {
    if (all_have_told()) return true;
    relax();
  }
  const auto until = steady_clock::now() + patience;
  for (;;) {
    const std::uint32_t tells = memory_->tells.load();
    if (all_have_told()) return true;
    const auto left =
        std::chrono::duration_cast<std::chrono::nanoseconds>(until - steady_clock::now()).count();
    if (left <= 0) return false;
    const timespec time{left / 1'000'000'000, left % 1'000'000'000};
    memory_->waiting.fetch_add(1);
    const bool has_slept = futex(memory_->tells, FUTEX_WAIT, tells, &time) == 0;
    const bool is_interrupted = !has_slept && errno == EINTR;
    memory_->waiting.fetch_sub(1);
    if (is_interrupted) return all_have_told();
  }
}

std::vector<std::string> NodeBoard::told() const {
  std::vector<std::string> records;
  for (const Place& place : std::span(memory_->places(), static_cast<std::size_t>(ranks_))) {
    const auto& record = place.records[sequence_ % 2];
    records.emplace_back(record.begin(), record.end());
  }
  return records;
}

std::optional<int> NodeBoard::gone() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Place& place = memory_->places()[rank];
    if (place.sequence.load(std::memory_order_acquire) >= sequence_) continue;
    const auto started = started_at(place.process.load());
    if (!started || *started != place.started.load()) return rank;
  }
  return std::nullopt;
}

}  // namespace gradvane::agent::ranks
