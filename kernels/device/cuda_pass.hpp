#pragma once
// The statistics pass on a CUDA device: every tensor of a plan in one read, enqueued on a stream of the
// caller and published in a ring of host memory, without the host waiting for anything.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/chunk_plan.hpp"
#include "kernels/device/pass_layout.hpp"
#include "kernels/device/pass_room.hpp"
#include "kernels/device/plan_tables.hpp"
#include "kernels/result_ring.hpp"
#include "kernels/running_totals.hpp"

namespace gradvane::kernels {

/// One plan on one device, its results in a ring of its own. Reads happen in the order of enqueue(),
/// also on different streams; only those in captured graphs are for the program to order, as all that
/// such a graph writes to. Two reads at the same time (a graph replayed on two streams at once, a replay
/// beside a read on another stream) count each other's blocks: from then on this pass may publish reads
/// that are not whole, or none.
///
/// The ring's sequence numbers are counted on the device, so a captured graph that is replayed keeps
/// counting; each slot's token says which enqueue() it comes from. A device overwrites the slot to come
/// early: of the ring's n slots, n - 1 can be read.
class CudaPass {
 public:
  /// Set-up: allocates, loads the kernel and waits for the copy of the tables; legal while another
  /// thread captures a graph, not while this one does. Throws CudaError, and what PlanTables throws.
  CudaPass(int device, std::span<const TensorShape> shapes, std::span<const Site> sites,
           int ring_slots, std::uint64_t plan_id);
  /// Waits for nothing and asks the device nothing: see PassRoom.
  ~CudaPass();
  CudaPass(const CudaPass&) = delete;  // kernels in flight hold its addresses
  CudaPass& operator=(const CudaPass&) = delete;

  /// Enqueues one read. data[i] is the address of tensor i on this device, aligned to its element; a
  /// number below device::kAddressLimit: the tensor is absent, and its `absence` is that number.
  /// Allocates nothing, waits for nothing, leaves no error behind and takes none away; legal in a
  /// capturing stream. An error other than success means that nothing was enqueued, or that the device
  /// is lost.
  cudaError_t enqueue(std::span<const void* const> data, std::uint64_t token,
                      cudaStream_t stream) noexcept;

  /// Multiplies the tensors of Site::grad in place by what makes gradient_norm() at most `max_norm`: by
  /// clip_coefficient(). data[i] as for the last enqueue(); what is absent here is left alone. In fp32, of fp64
  /// in fp64, rounded to the dtype. Where the coefficient is 1, nothing is read or written. As enqueue() in
  /// all else; gradient_norm() stays that of before. `has_begun`: some of it was enqueued, even if not all.
  cudaError_t clip(std::span<void* const> data, double max_norm, cudaStream_t stream,
                   bool& has_begun) noexcept;

  /// The one host sync of immediate mode: until the reads so far are done, and not what `stream` was given
  /// after them. Once a graph holds a read: until everything on `stream` so far is done. Refused
  /// (cudaErrorStreamCaptureUnsupported) while the stream captures.
  cudaError_t wait(cudaStream_t stream) noexcept;

  /// The same tensors are those of another plan from the next enqueue() on.
  void belong_to(std::uint64_t plan_id) noexcept { tables_.plan_id = plan_id; }

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] const ResultRing& ring() const noexcept { return ring_; }
  /// Uses at most so many physical blocks: no bit of the result depends on it.
  void limit_blocks(int blocks) noexcept {
    read_.resident_blocks = scale_.resident_blocks = blocks;
  }
  [[nodiscard]] int launches() const noexcept { return static_cast<int>(launches_.size()); }

  // On the device, valid behind an enqueue() in stream order, until the next one.
  /// L2 norm of the tensors of Site::grad, fp64: NaN or +Inf where one holds such an element.
  [[nodiscard]] const double* gradient_norm() const noexcept;
  /// 1.0f where one of them, or one of Site::loss, holds a non-finite element, else 0.0f.
  [[nodiscard]] const float* found_nonfinite() const noexcept;
  /// The same of Site::grad alone.
  [[nodiscard]] const float* nonfinite_gradients() const noexcept;
  /// What `stream` was given so far may use them: the next pass in this memory comes behind it. In a capture it does
  /// nothing: then no other pass gets the memory.
  cudaError_t note_use(cudaStream_t stream) noexcept;
  [[nodiscard]] const TensorStats* stats() const noexcept { return tables_.stats; }  ///< by tensor

  [[nodiscard]] std::size_t device_bytes() const noexcept { return room_.table_bytes(); }
  [[nodiscard]] std::size_t ring_bytes() const noexcept { return room_.ring().size(); }

 private:
  struct Parts;
  CudaPass(int device, const Parts& parts, int ring_slots, std::uint64_t plan_id);
  struct Kernel {
    const void* function = nullptr;
    int resident_blocks = 0;  ///< on the whole device
  };
  struct Call {
    std::uint64_t token = 0;
    double max_norm = 0;
  };
  /// Behind what the last stream was given. `ordered`: not in a capture, where that is the program's.
  cudaError_t begin(cudaStream_t stream, bool& ordered) noexcept;
  cudaError_t launch_all(const Kernel& kernel, const Call& call, std::span<const void* const> data,
                         cudaStream_t stream, int& launched) noexcept;
  template <std::size_t kPointers>
  cudaError_t launch_all(device::Launch<kPointers>& launch, const Kernel& kernel, const Call& call,
                         std::span<const void* const> data, cudaStream_t stream,
                         int& launched) noexcept;
  /// What was launched may use the tables until the event behind it.
  cudaError_t end(cudaStream_t stream, bool ordered, cudaError_t error) noexcept;
  cudaError_t forget_half_a_read(cudaStream_t stream) noexcept;

  int device_;
  Kernel read_;
  Kernel scale_;
  std::vector<device::LaunchRange> launches_;
  PassRoom room_;
  ResultRing ring_;
  cudaStream_t last_stream_ = nullptr;
  bool has_last_ = false;
  bool in_a_graph_ = false;   ///< which may be replayed at any time
  bool is_unmarked_ = false;  ///< kernels are under way that no event stands behind
  bool is_torn_ = false;      ///< a read was not enqueued to its end, and has left counts
  device::PassTables tables_;
  bool few_ = false;  ///< the small parameter block is enough
  std::unique_ptr<device::Launch<device::kManyPointers>> many_launch_;
  std::unique_ptr<device::Launch<device::kFewPointers>> few_launch_;
};

}  // namespace gradvane::kernels
