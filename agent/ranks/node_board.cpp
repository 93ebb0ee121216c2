#include "agent/ranks/node_board.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <random>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "exporters/files/safe_file.hpp"
#include "record/run/process_start.hpp"

namespace gradvane::agent::ranks {
namespace {

using std::chrono::steady_clock;

constexpr std::uint64_t kBoardMagic = 0x0000'3164'7262'7667;  // "gvbrd1"
constexpr int kMostRanks = 4096;
constexpr std::size_t kMostBytes = std::size_t{1} << 24;
constexpr std::size_t kLine = 64;  // of a cache
constexpr int kSpins = 2000;       // some 20 microseconds

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void* mapped(int file, std::size_t size) noexcept {
  return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

void close_keeping_errno(int file) noexcept {
  const int why = errno;
  close(file);
  errno = why;
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

/// What is shared: this, and for each rank a Place and its two records.
struct alignas(kLine) NodeBoard::Memory {
  std::uint64_t magic;
  std::uint64_t bytes;
  std::uint32_t ranks;
  std::atomic<std::uint32_t> tells;    ///< of all ranks; who waits sleeps on it
  std::atomic<std::uint32_t> waiting;  ///< ranks that may sleep
};

struct alignas(kLine) NodeBoard::Place {
  std::atomic<std::uint64_t> sequence;
  std::atomic<std::int64_t> process;
  std::atomic<std::uint64_t>
      started;  ///< when the process was, since numbers of processes come again
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

namespace {

std::size_t record_bytes(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
std::size_t place_bytes(std::size_t bytes) { return kLine + 2 * record_bytes(bytes); }
std::size_t whole_bytes(int ranks, std::size_t bytes) {
  return kLine + static_cast<std::size_t>(ranks) * place_bytes(bytes);
}

}  // namespace

std::string this_node() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code error;
  const auto numbers = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  struct stat shared{};
  if (boot.empty() || error || stat("/dev/shm", &shared) != 0)
    return exporters::random_word();  // like no other
  std::ostringstream node;
  node << boot << ' ' << numbers.string() << ' ' << shared.st_dev << ' ' << shared.st_ino << ' '
       << geteuid();
  return node.str();
}

std::string NodeBoard::make(int ranks, std::size_t bytes) {
  static_assert(sizeof(Memory) == kLine && sizeof(Place) == kLine);
  if (ranks < 1 || ranks > kMostRanks || bytes > kMostBytes)
    throw std::invalid_argument("NodeBoard: " + std::to_string(ranks) + " ranks, " +
                                std::to_string(bytes) + " bytes");
  std::random_device random;
  std::ostringstream name;
  name << "/gradvane-" << geteuid() << '-' << std::hex << random() << random();
  const int file = shm_open(name.str().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) fail("shm_open");
  const std::size_t size = whole_bytes(ranks, bytes);
  // Taken now: a page that is not there when it is written to would be a SIGBUS.
  errno = posix_fallocate(file, 0, static_cast<off_t>(size));
  void* memory = errno != 0 ? MAP_FAILED : mapped(file, size);
  close_keeping_errno(file);
  if (memory == MAP_FAILED) {
    const int why = errno;
    remove(name.str());
    errno = why;
    fail("no shared memory");
  }
  new (memory) Memory{kBoardMagic, bytes, static_cast<std::uint32_t>(ranks), 0, 0};
  for (int rank = 0; rank < ranks; ++rank)
    new (static_cast<char*>(memory) + kLine + static_cast<std::size_t>(rank) * place_bytes(bytes))
        Place{};
  munmap(memory, size);
  return name.str();
}

void NodeBoard::remove(const std::string& name) noexcept { shm_unlink(name.c_str()); }

NodeBoard::NodeBoard(const std::string& name, int rank, int ranks, std::size_t bytes)
    : rank_(rank),
      ranks_(ranks),
      bytes_(bytes),
      spins_(std::thread::hardware_concurrency() > static_cast<unsigned>(ranks)) {
  if (rank < 0 || rank >= ranks || ranks > kMostRanks || bytes > kMostBytes)
    throw std::invalid_argument("NodeBoard: rank " + std::to_string(rank) + " of " +
                                std::to_string(ranks));
  const int file = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (file < 0) fail("shm_open");
  struct stat status{};
  const std::size_t size = whole_bytes(ranks, bytes);
  const bool is_ours = fstat(file, &status) == 0 && status.st_uid == geteuid() &&
                       status.st_size == static_cast<off_t>(size);
  void* memory = is_ours ? mapped(file, size) : MAP_FAILED;
  close_keeping_errno(file);
  if (!is_ours)
    throw std::runtime_error(name + " is not a board of this user for " + std::to_string(ranks) +
                             " ranks");
  if (memory == MAP_FAILED) fail("mmap");
  memory_ = static_cast<Memory*>(memory);
  if (memory_->magic != kBoardMagic || memory_->ranks != static_cast<std::uint32_t>(ranks) ||
      memory_->bytes != bytes) {
    munmap(memory, size);
    throw std::runtime_error(name + " is a board of another version");
  }
  place(rank_).started.store(record::process_start_ticks(getpid()).value_or(0));
  place(rank_).process.store(getpid());
}

NodeBoard::NodeBoard(NodeBoard&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      rank_(other.rank_),
      ranks_(other.ranks_),
      bytes_(other.bytes_),
      spins_(other.spins_),
      sequence_(other.sequence_) {}

NodeBoard::~NodeBoard() {
  if (memory_ == nullptr) return;
  std::int64_t mine = getpid();
  place(rank_).process.compare_exchange_strong(mine, 0);
  munmap(memory_, whole_bytes(ranks_, bytes_));
}

NodeBoard::Place& NodeBoard::place(int rank) const noexcept {
  char* places = reinterpret_cast<char*>(memory_) + kLine;
  return *reinterpret_cast<Place*>(places + static_cast<std::size_t>(rank) * place_bytes(bytes_));
}

/// One of two, by turns: a rank may be one exchange ahead of another, which still reads the one before. It cannot
/// be two ahead, since that takes a record from everyone.
char* NodeBoard::record(int rank, std::uint64_t sequence) const noexcept {
  return reinterpret_cast<char*>(&place(rank)) + kLine + sequence % 2 * record_bytes(bytes_);
}

void NodeBoard::tell(std::string_view told) noexcept {
  const std::uint64_t sequence = ++sequence_;
  if (!told.empty())
    std::memcpy(record(rank_, sequence), told.data(), std::min(told.size(), bytes_));
  place(rank_).sequence.store(sequence, std::memory_order_release);
  // Before who waits is looked at: a rank says that it waits first, and then looks at this once more.
  memory_->tells.fetch_add(1);
  if (memory_->waiting.load() != 0) futex(memory_->tells, FUTEX_WAKE, INT32_MAX, nullptr);
}

bool NodeBoard::all_have_told() const noexcept {
  for (int rank = 0; rank < ranks_; ++rank)
    if (place(rank).sequence.load(std::memory_order_acquire) < sequence_) return false;
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

std::string NodeBoard::told_by(int rank) const { return {record(rank, sequence_), bytes_}; }

std::optional<int> NodeBoard::gone() const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const Place& other = place(rank);
    if (other.sequence.load(std::memory_order_acquire) >= sequence_) continue;
    const auto started = record::process_start_ticks(static_cast<pid_t>(other.process.load()));
    if (!started || *started != other.started.load()) return rank;
  }
  return std::nullopt;
}

}  // namespace gradvane::agent::ranks
