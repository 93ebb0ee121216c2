#include "tests/kernels/device/fiber_block.hpp"

#include <ucontext.h>

#include <algorithm>
#include <cassert>
#include <csetjmp>
#include <stdexcept>
#include <string>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace gradvane::kernels::test {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kJumps = false;  // they know swapcontext, and take a jump for the end of its frames
#else
constexpr bool kJumps = true;  // swapcontext asks the kernel for the signal mask each time
#endif

}  // namespace

/// A context, and what the sanitizers want to know of it.
struct FiberBlock::Fiber {
  ucontext_t context{};
  std::jmp_buf jump{};
  bool has_begun = true;
  Wait wait = Wait::nothing;
  std::size_t exchanges = 0;
  [[maybe_unused]] void* fake_stack = nullptr;
  [[maybe_unused]] const void* stack_begin = nullptr;
  [[maybe_unused]] std::size_t stack_bytes = 0;
  [[maybe_unused]] void* tsan_fiber = nullptr;

  /// To another fiber, and back here when somebody switches to us. `for_good`: never back.
  void switch_to(Fiber& to, bool for_good) {
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to.tsan_fiber, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack, to.stack_begin,
                                   to.stack_bytes);
#endif
    (void)for_good;
    if constexpr (kJumps) {
      if (_setjmp(jump) != 0) return;  // NOLINT(cert-err52-cpp): no frame is left for good
      if (to.has_begun) _longjmp(to.jump, 1);
      to.has_begun = true;
      setcontext(&to.context);
    } else {
      swapcontext(&context, &to.context);
    }
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, &to.stack_begin, &to.stack_bytes);
#endif
  }
};

FiberBlock::FiberBlock(int threads, Order order)
    : order_(order), scheduler_(std::make_unique<Fiber>()) {
  if (threads <= 0 || threads % kWarp != 0)
    throw std::invalid_argument("FiberBlock: " + std::to_string(threads) + " threads");
#if defined(__SANITIZE_THREAD__)
  scheduler_->tsan_fiber = __tsan_get_current_fiber();
#endif
  for (auto& values : exchanged_) values.resize(static_cast<std::size_t>(threads));
  stacks_ =
      std::make_unique_for_overwrite<std::byte[]>(kStackBytes * static_cast<std::size_t>(threads));
  for (int thread = 0; thread < threads; ++thread) {
    auto fiber = std::make_unique<Fiber>();
    fiber->stack_begin = stack_of(thread);
    fiber->stack_bytes = kStackBytes;
#if defined(__SANITIZE_THREAD__)
    fiber->tsan_fiber = __tsan_create_fiber(0);
#endif
    fibers_.push_back(std::move(fiber));
  }
}

FiberBlock::~FiberBlock() {
#if defined(__SANITIZE_THREAD__)
  for (const auto& fiber : fibers_) __tsan_destroy_fiber(fiber->tsan_fiber);
#endif
}

std::byte* FiberBlock::stack_of(int thread) {
  return stacks_.get() + kStackBytes * static_cast<std::size_t>(thread);
}

void FiberBlock::run(const std::function<void(int)>& body) {
  body_ = body;
  for (int thread = 0; const auto& fiber : fibers_) {
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = stack_of(thread++);
    fiber->context.uc_stack.ss_size = kStackBytes;
    fiber->context.uc_link = nullptr;
    fiber->has_begun = false;
    fiber->wait = Wait::nothing;
    fiber->exchanges = 0;
    fiber->fake_stack = nullptr;
    makecontext(&fiber->context, &FiberBlock::enter, 0);
  }
  const int warps = static_cast<int>(fibers_.size()) / kWarp;
  for (;;) {
    bool moved = false;
    for (int i = 0; i < warps; ++i)
      moved |= step_warp(order_ == Order::forward ? i : warps - 1 - i);
    const auto all = [&](Wait wait) {
      return std::all_of(fibers_.begin(), fibers_.end(),
                         [&](const auto& fiber) { return fiber->wait == wait; });
    };
    if (all(Wait::ended)) return;
    if (all(Wait::block)) {
      for (const auto& fiber : fibers_) fiber->wait = Wait::nothing;
    } else if (!moved) {
      throw std::logic_error("FiberBlock: threads wait for each other at different places");
    }
  }
}

/// Runs a warp until its lanes wait for the block, have ended, or are stuck. False: nothing could run.
bool FiberBlock::step_warp(int warp) {
  bool moved = false;
  const int first = warp * kWarp;
  for (;;) {
    for (int i = 0; i < kWarp; ++i) {
      const int thread = first + (order_ == Order::forward ? i : kWarp - 1 - i);
      if (fibers_[static_cast<std::size_t>(thread)]->wait != Wait::nothing) continue;
      resume(thread);
      moved = true;
    }
    const auto begin = fibers_.begin() + first;
    const bool at_exchange = std::all_of(
        begin, begin + kWarp, [](const auto& fiber) { return fiber->wait == Wait::warp; });
    if (!at_exchange) return moved;
    std::for_each(begin, begin + kWarp, [](const auto& fiber) { fiber->wait = Wait::nothing; });
  }
}

thread_local FiberBlock* FiberBlock::entering = nullptr;

void FiberBlock::resume(int thread) {
  entering = this;
  running_ = thread;
  scheduler_->switch_to(*fibers_[static_cast<std::size_t>(thread)], false);
}

void FiberBlock::yield(Wait wait) {
  Fiber& self = *fibers_[static_cast<std::size_t>(running_)];
  self.wait = wait;
  self.switch_to(*scheduler_, wait == Wait::ended);
}

void FiberBlock::enter() {
  FiberBlock* block = entering;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &block->scheduler_->stack_begin,
                                  &block->scheduler_->stack_bytes);
#endif
  block->body_(block->running_);
  block->yield(Wait::ended);
}

void FiberBlock::wait_for_block() { yield(Wait::block); }

const std::uint64_t* FiberBlock::exchange(std::uint64_t value) {
  const auto thread = static_cast<std::size_t>(running_);
  auto& values = exchanged_[fibers_[thread]->exchanges++ % 2];
  values[thread] = value;
  yield(Wait::warp);
  return values.data() + thread / kWarp * kWarp;
}

}  // namespace gradvane::kernels::test
