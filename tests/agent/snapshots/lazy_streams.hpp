#pragma once
// A device that is simulated on the CPU, as unkind as a real one may be: what is put on a stream other than the main one
// runs as late as the events between streams allow.
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "agent/snapshots/streams.hpp"

namespace gradvane::test {

class LazyStreams : public agent::Streams {
 public:
  static constexpr int kMain = 0;
  static constexpr int kSide = 1;
  static constexpr int kSecond = 2;  ///< the program's own

  [[nodiscard]] static c10::Stream stream(int number) {
    return c10::Stream(c10::Stream::UNSAFE, {c10::DeviceType::CUDA, 0}, number);
  }

  // What a program does ---------------------------------------------------------------------------

  /// `work` runs on the stream: at once on the main one.
  void put(int number, std::function<void()> work) {
    Queue& queue = queues_[number];
    queue.work.push_back(std::move(work));
    if (number == kMain) run(number, queue.work.size());
  }
  void run_all() {
    for (auto& [number, queue] : queues_) run(number, queue.work.size());
  }

  std::vector<std::string> log{};  ///< the calls in their order
  bool lands = true;               ///< false: no event is ever found to have happened by asking
  bool forgets_waits = false;      ///< the control
  int fails_in = -1;               ///< after so many calls one throws; below 0: none does
  int blocks = 0;                  ///< of host memory that were asked for
  std::shared_ptr<int> host_waits = std::make_shared<int>(0);

  // What the snapshots call -----------------------------------------------------------------------

  [[nodiscard]] c10::Device device_of(const at::Tensor&) const override {
    return {c10::DeviceType::CUDA, 0};
  }
  at::Tensor host_memory(std::int64_t size) override {
    ++blocks;
    return at::full({size}, 0xAA, at::kByte);
  }
  c10::Stream current(c10::Device) override { return stream(kMain); }
  c10::Stream side(c10::Device) override { return stream(kSide); }

  Event record(c10::Stream stream) override {
    may_fail();
    const auto number = static_cast<int>(stream.id());
    auto event = std::make_shared<Mark>();
    event->stream = number;
    event->position = queues_[number].work.size();
    log.push_back("record " + name(number));
    return event;
  }
  void wait(c10::Stream stream, const Event& event) override {
    may_fail();
    const auto number = static_cast<int>(stream.id());
    log.push_back(name(number) + " waits for " + name(mark(event).stream));
    if (!forgets_waits) put(number, [this, event] { run_to(mark(event)); });
  }
  void copy(c10::Stream stream, std::span<const at::Tensor> to,
            std::span<const at::Tensor> from) override {
    may_fail();
    const auto number = static_cast<int>(stream.id());
    log.push_back("copy on " + name(number));
    put(number, [targets = std::vector(to.begin(), to.end()),
                 sources = std::vector(from.begin(), from.end())] {
      const c10::NoGradGuard no_grad;  // it may be anyone who waits for them
      for (std::size_t i = 0; i < targets.size(); ++i) (void)targets[i].copy_(sources[i]);
    });
  }
  bool has_landed(const Event& event) override {
    may_fail();
    log.emplace_back("query");
    if (lands) run_to(mark(event));
    return queues_[mark(event).stream].done >= mark(event).position;
  }
  void wait_on_host(const Event& event) override {
    may_fail();
    log.emplace_back("host waits");
    ++*host_waits;
    run_to(mark(event));
  }
  void synchronize(c10::Device) override {
    log.emplace_back("synchronize");
    run_all();
  }

 private:
  struct Mark : agent::StreamEvent {
    int stream = 0;
    std::size_t position = 0;
  };
  struct Queue {
    std::deque<std::function<void()>> work{};
    std::size_t done = 0;
  };

  void may_fail() {
    if (fails_in >= 0 && fails_in-- == 0) throw std::runtime_error("the device failed");
  }
  static const Mark& mark(const Event& event) { return static_cast<const Mark&>(*event); }
  static std::string name(int number) {
    return number == kMain ? "main" : number == kSide ? "side" : "second";
  }
  void run_to(const Mark& mark) { run(mark.stream, mark.position); }
  void run(int number, std::size_t position) {
    Queue& queue = queues_[number];
    while (queue.done < position) queue.work[queue.done++]();
  }

  std::map<int, Queue> queues_{};
};

}  // namespace gradvane::test
