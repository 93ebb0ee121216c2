#pragma once
// Whether tensors are finite, asked where they are made and answered later: one small result each, left on
// its device, and all of them fetched together.
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "collectors/sync_ledger/sync_ledger.hpp"

namespace gradvane::collectors {

/// The worst that a tensor holds. Minus infinity is what masks are made of; the others seldom are meant.
enum class Finiteness : std::int8_t { unknown = -1, finite, minus_infinity, plus_infinity, nan };

/// Any thread may add: a backward pass has threads of its own.
class FiniteChecks {
 public:
  /// Null: nobody counts host syncs.
  explicit FiniteChecks(SyncLedger* ledger) noexcept : ledger_(ledger) {}

  /// Asks it of a tensor: one read of its memory, enqueued on the current stream of its device, without a
  /// wait, an autograd graph, a cast or anything that a dispatch mode could see. Returns the question's
  /// index; -1 for what cannot be asked: no number with a fraction, no element, no memory of its own (meta,
  /// fake, a subclass), a layout whose values do not lie in one tensor, no memory for the result.
  std::int32_t add(const at::Tensor& tensor) noexcept;
  [[nodiscard]] std::size_t size() const noexcept;

  struct Answers {
    std::vector<Finiteness> of;   ///< by index
    std::int32_t host_syncs = 0;  ///< one for each stream that was asked on
  };
  /// Fetches the answers and forgets the questions. Waits for the devices; what could not be fetched is
  /// unknown.
  [[nodiscard]] Answers take();

 private:
  /// What was asked on one stream and is answered in one type.
  struct Asked {
    c10::Stream stream;
    at::ScalarType type;
    std::vector<std::int32_t> indices;
    std::vector<at::Tensor> packed;  ///< answers in fp64, in the order of the indices
    std::vector<at::Tensor> loose;   ///< those after them: smallest, largest, smallest, ...
  };

  static void pack(Asked& asked);
  static void fetch(std::vector<Asked>& asked, std::size_t first, std::vector<Finiteness>& into);

  SyncLedger* ledger_;
  mutable std::mutex mutex_;  ///< guards what follows
  std::vector<Asked> asked_;
  std::int32_t questions_ = 0;
};

}  // namespace gradvane::collectors
