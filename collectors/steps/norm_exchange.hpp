#pragma once
// Where processes that hold parts of the same parameters tell each other what they bring to its norm. This
// process's side: how it travels is somebody else's business, and never the training thread's.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace gradvane::collectors {

/// The worker posts and asks; a courier takes and gives. Any thread.
class NormExchange {
 public:
  /// `allowed` false: open() has no effect.
  explicit NormExchange(bool allowed = true) noexcept : allowed_(allowed) {}

  struct Contribution {
    std::int64_t step = 0;
    std::int32_t optimizer = 0;
    double norm = 0;  ///< its square is this process's summand
  };
  static constexpr std::size_t kMostKept = 1024;  ///< that nobody has come for

  /// A courier is there from now on. False where the exchange is switched off: then none is needed.
  bool open();
  /// It is not any longer: waits for nothing, here or there.
  void close();
  [[nodiscard]] bool is_open() const;
  /// The courier could not go on: counts an error and closes.
  void fail();
  /// Errors since the last call.
  [[nodiscard]] int take_failures();

  void post(const Contribution& contribution);
  /// What was posted since the last call; waits for the first up to `seconds`, or for close().
  [[nodiscard]] std::vector<Contribution> take(double seconds);
  /// The norm over all processes.
  void give(std::int64_t step, std::int32_t optimizer, double norm);
  /// That norm, once; absent while it is not there.
  [[nodiscard]] std::optional<double> collect(std::int64_t step, std::int32_t optimizer);

 private:
  mutable std::mutex mutex_;  ///< guards what follows
  std::condition_variable posted_;
  bool allowed_;
  int failures_ = 0;
  bool is_open_ = false;
  std::deque<Contribution> posts_;
  std::map<std::pair<std::int64_t, std::int32_t>, double> given_;
};

}  // namespace gradvane::collectors
