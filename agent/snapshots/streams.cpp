#include "agent/snapshots/streams.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <map>
#include <stdexcept>
#include <string>

#include "collectors/tensors/pinned_memory.hpp"

namespace gradvane::agent {
namespace {

struct TorchEvent : StreamEvent {
  explicit TorchEvent(c10::DeviceType type) : event(type) {}
  c10::Event event;
};

c10::Event& event_in(const Streams::Event& event) { return static_cast<TorchEvent&>(*event).event; }

const c10::impl::DeviceGuardImplInterface& driver_of(c10::Device device) {
  return *c10::impl::getDeviceGuardImpl(device.type());
}

class TorchStreams : public Streams {
 public:
  at::Tensor host_memory(std::int64_t size) override {
    at::Tensor memory = at::empty({size}, at::kByte);
    if (size == 0) return memory;
    memory.zero_();  // the kernel commits it
    const auto refused = collectors::pin(memory.mutable_data_ptr(), static_cast<std::size_t>(size));
    if (!refused.empty())
      throw std::runtime_error(
          "CUDA could not pin " + std::to_string(size >> 20) + " MiB of host memory (" + refused +
          "); raise the limit of locked memory (ulimit -l), or switch snapshots off");
    const auto unpin = [memory, owner = ::getpid()](void* pinned) {
      if (::getpid() == owner) collectors::unpin(pinned);  // a forked child has no CUDA context
    };
    return at::from_blob(memory.mutable_data_ptr(), {size}, unpin, at::kByte);
  }

  c10::Stream current(c10::Device device) override { return driver_of(device).getStream(device); }
  c10::Stream side(c10::Device device) override {
    const auto found = sides_.find(device.index());
    if (found != sides_.end()) return found->second;
    return sides_.emplace(device.index(), driver_of(device).getStreamFromGlobalPool(device))
        .first->second;
  }

  Event record(c10::Stream stream) override {
    auto event = std::make_shared<TorchEvent>(stream.device_type());
    event->event.record(stream);
    return event;
  }
  void wait(c10::Stream stream, const Event& event) override { event_in(event).block(stream); }

  void copy(c10::Stream stream, std::span<const at::Tensor> to,
            std::span<const at::Tensor> from) override {
    const c10::NoGradGuard no_grad;
    const c10::StreamGuard guard(stream);
    for (std::size_t i = 0; i < to.size(); ++i) (void)to[i].copy_(from[i], true);
  }

  bool has_landed(const Event& event) override { return event_in(event).query(); }
  void wait_on_host(const Event& event) override { event_in(event).synchronize(); }
  void synchronize(c10::Device device) override {
    driver_of(device).synchronizeDevice(device.index());
  }

 private:
  std::map<c10::DeviceIndex, c10::Stream> sides_;
};

}  // namespace

std::unique_ptr<Streams> torch_streams() { return std::make_unique<TorchStreams>(); }

}  // namespace gradvane::agent
