#pragma once
// Reads a list of tensors where they lie on CUDA devices: one pass, ring and launch for each device. In
// a build without CUDA it takes no tensor.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectors/steps/device_source.hpp"
#include "collectors/steps/step_facts.hpp"
#include "collectors/tensors/tensor.hpp"
#include "kernels/running_totals.hpp"

namespace gradvane::collectors {

/// The device's half of CpuReader. Training thread only. Once the passes are made, a step allocates
/// nothing and waits for nothing; they are made ahead, or when tensors of other sizes are seen, never while the
/// current stream captures a graph, and used again when these sizes come back. Where a device has no
/// memory for a pass, its tensors are missing for a while. Nothing waits for a device at the end: what a
/// pass had is given to the next one, or left alone where a captured graph may still write there.
class DeviceReads {
 public:
  DeviceReads();
  ~DeviceReads();
  DeviceReads(const DeviceReads&) = delete;  // devices hold its addresses
  DeviceReads& operator=(const DeviceReads&) = delete;

  /// Room for sites.size() entries in plans called `plan_id`. Allocates on the host.
  /// @param expected  tensors that the first entries are likely to look like. What was made for the same
  ///                  sites and expectations is kept.
  void resize(std::vector<kernels::Site> sites, int ring_slots, std::uint64_t plan_id,
              std::span<const Tensor> expected = {});

  /// Makes the passes that what is expected needs, so that the first read allocates nothing on a device: by then the program
  /// may have all of its memory. Where one cannot be made, the first read tries again.
  /// @param last  tensors that the last entries are likely to look like, undefined where nothing will come. If it is empty,
  ///              a loss and a scaler's factor are expected, by their sites.
  void make_ahead(std::span<const Tensor> last = {}) noexcept;

  /// Whether a tensor is on a device that this build reads, and which still answers.
  [[nodiscard]] bool takes(const Tensor& tensor) const noexcept;

  /// Puts a tensor that it takes at `entry`, until the next read(). Says what becomes of it there.
  EntryTag set(std::size_t entry, const Tensor& tensor) noexcept;
  /// Says of an entry why it is not read here.
  void leave_out(std::size_t entry, EntryTag tag) noexcept;

  /// Enqueues what was set since the last read, on the current stream of each device, and writes which
  /// slots it will be in. Returns how many; 0 where nothing was set.
  std::size_t read(std::span<DeviceRead> out) noexcept;
  /// Waits until the last read() is done: one host sync a device. `waited` is the set of devices that
  /// need no more of it, because something enqueued later was waited for, and grows. False where a
  /// stream captures, or a device is lost.
  bool wait(std::uint64_t& waited) noexcept;
  /// Whether the last read() was to go into a graph that is being captured; it may have been left out.
  [[nodiscard]] bool captured() const noexcept;
  /// Whether it took in everything that was set: not where there is no pass for some of it.
  [[nodiscard]] bool all_read() const noexcept;

  /// Sources made since the last call, for the worker.
  [[nodiscard]] std::vector<std::shared_ptr<const DeviceSource>> take_new_sources();

  /// What the last read() left of the tensors of Site::grad on its only device: their norm, a 0-dim
  /// fp64 tensor there, valid until the next read() in stream order. Undefined with more than one
  /// device.
  [[nodiscard]] Tensor norm() const;
  /// Of each device that the last read() took something from, a 0-dim fp32 tensor there, valid as norm() is: 1 where a
  /// tensor of Site::grad or Site::loss held an element that is not finite, else 0.
  [[nodiscard]] std::vector<Tensor> found_nonfinite() const;
  /// The same of Site::grad alone.
  [[nodiscard]] std::vector<Tensor> nonfinite_gradients() const;
  /// Multiplies the `count` tensors of Site::grad that were set since the last read(), in place, by what makes its
  /// norm() at most `max_norm`, and forgets them as read() does. False, and nothing was changed, where they are
  /// fewer, of other sizes than those that were read, not dense in memory, or on more than one device. What torch
  /// counts of writes is the caller's to raise.
  bool clip(std::size_t count, double max_norm) noexcept;
  /// What the current streams were given so far may use norm(), found_nonfinite() or nonfinite_gradients(): their
  /// memory is not given to another pass before that is done.
  void note_use() noexcept;
  /// Whether the current stream of a device that the last read() took something from captures a graph now.
  [[nodiscard]] bool is_capturing() const noexcept;
  [[nodiscard]] std::int32_t copies() const noexcept;  ///< temporaries in the last read

  /// Why a device was given up; empty: none was.
  [[nodiscard]] const std::string& failure() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Host syncs that sizes or dtypes seen for the first time made in this process, since it was last asked: what
/// reads them is copied to the device then. Any thread.
[[nodiscard]] std::int32_t take_set_up_waits() noexcept;

}  // namespace gradvane::collectors
