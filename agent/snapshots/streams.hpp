#pragma once
// What copies between a device and the host ask of its streams: a small interface, so that a test can put a simulated
// device in its place.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <span>

namespace gradvane::agent {

/// What has been put on a stream up to a moment.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
};

/// Training thread only. Throws what torch throws if a device fails.
class Streams {
 public:
  using Event = std::shared_ptr<StreamEvent>;

  virtual ~Streams() = default;

  [[nodiscard]] virtual c10::Device device_of(const at::Tensor& tensor) const {
    return tensor.device();
  }
  /// `size` bytes of the host that devices copy to and from without a stop. Throws std::runtime_error if there are none.
  [[nodiscard]] virtual at::Tensor host_memory(std::int64_t size) = 0;

  [[nodiscard]] virtual c10::Stream current(c10::Device device) = 0;
  /// A stream of our own on the device, always the same one.
  [[nodiscard]] virtual c10::Stream side(c10::Device device) = 0;

  /// Behind everything that is on the stream so far.
  [[nodiscard]] virtual Event record(c10::Stream stream) = 0;
  /// What is put on the stream from now on comes after the event. The host does not wait.
  virtual void wait(c10::Stream stream, const Event& event) = 0;
  /// Puts the copies on the stream.
  virtual void copy(c10::Stream stream, std::span<const at::Tensor> to,
                    std::span<const at::Tensor> from) = 0;
  [[nodiscard]] virtual bool has_landed(const Event& event) = 0;
  virtual void wait_on_host(const Event& event) = 0;
  /// Waits for everything on the device.
  virtual void synchronize(c10::Device device) = 0;
};

[[nodiscard]] std::unique_ptr<Streams> torch_streams();

}  // namespace gradvane::agent
