#pragma once
// DeviceReads' part on one CUDA device.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectors/steps/device_source.hpp"
#include "collectors/steps/step_facts.hpp"
#include "collectors/tensors/entry_layout.hpp"
#include "collectors/tensors/tensor_view.hpp"
#include "kernels/device/cuda_pass.hpp"
#include "kernels/running_totals.hpp"

namespace gradvane::collectors {

/// The entries that lie on one device, and the passes that read them: one for each set of layouts that was
/// seen, at most kMostPasses. What they do not fit is unsupported from then on.
class OneDevice {
 public:
  static constexpr std::size_t kMostPasses = 8;

  /// `expected`: by entry, or empty. Calls nothing of CUDA.
  OneDevice(int device, const std::vector<kernels::Site>& sites,
            const std::vector<ExpectedEntry>& expected, int ring_slots, std::uint64_t plan_id);

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }
  /// The same entries are those of another plan.
  void belong_to(std::uint64_t plan_id) noexcept { plan_id_ = plan_id; }

  // As those of DeviceReads.
  void make_ahead(std::span<const ExpectedEntry> last,
                  std::vector<std::shared_ptr<const DeviceSource>>& new_sources) noexcept;
  EntryTag set(std::size_t entry, const Tensor& tensor) noexcept;
  EntryTag leave_out(std::size_t entry, EntryTag tag) noexcept;
  /// A read of nothing has source 0.
  DeviceRead read(std::vector<std::shared_ptr<const DeviceSource>>& new_sources) noexcept;
  bool wait() noexcept;
  [[nodiscard]] bool captured() const noexcept { return captured_; }
  [[nodiscard]] bool all_read() const noexcept { return all_read_; }
  [[nodiscard]] std::int32_t copies() const noexcept { return copies_; }
  /// Only after a read of something.
  [[nodiscard]] Tensor norm() const;
  [[nodiscard]] Tensor found_nonfinite() const;
  [[nodiscard]] Tensor nonfinite_gradients() const;
  bool clip(std::size_t count, double max_norm) noexcept;
  void forget_what_was_set() noexcept;
  void note_use() noexcept;
  [[nodiscard]] bool is_capturing() const noexcept;

 private:
  struct Made {
    std::vector<EntryLayout> layouts;
    std::shared_ptr<kernels::CudaPass> pass;
    std::uint64_t source = 0;
    std::uint64_t token = 0;
  };
  [[nodiscard]] bool is_set(std::size_t entry) const noexcept;
  [[nodiscard]] bool fits(const Made& made) const noexcept;
  void use(std::size_t made);
  bool use_one_that_fits();
  void leave_out_what_does_not_fit();
  void make(std::vector<std::shared_ptr<const DeviceSource>>& new_sources);
  bool prepare(std::vector<std::shared_ptr<const DeviceSource>>& new_sources) noexcept;
  DeviceRead enqueue() noexcept;
  bool succeeded(cudaError_t error, const char* what) noexcept;
  void give_up(const std::string& why) noexcept;

  int device_;
  int ring_slots_;
  std::uint64_t plan_id_;
  std::vector<kernels::Site> sites_;
  std::vector<ExpectedEntry> expected_;

  std::vector<TensorView> views_;
  std::vector<EntryLayout> layouts_;  ///< of the pass in use; of what was set where that differs
  std::vector<void*> data_;
  bool fits_ = false;  ///< nothing that was set differs
  std::size_t set_ = 0;
  std::int32_t copies_set_ = 0;

  std::vector<Made> made_;
  std::size_t used_ = 0;  ///< of these, where there are any
  cudaStream_t stream_ = nullptr;
  bool captured_ = false;
  bool pending_ = false;
  bool all_read_ = true;
  std::int32_t copies_ = 0;
  std::string failure_;
  int pause_ = 0;
};

}  // namespace gradvane::collectors
