#include "bench/collectors/allocation_counter.hpp"

#include <errno.h>

#include <atomic>
#include <cstddef>

// NOLINTBEGIN(readability-identifier-naming): the C library's names
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}
// NOLINTEND(readability-identifier-naming)

namespace {
std::atomic<std::int64_t> total{0};
void count(std::size_t bytes) noexcept {
  total.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
}
}  // namespace

// A program's own definitions come before the C library's, also for the libraries it loads, as long as
// those can see them.
#pragma GCC visibility push(default)
extern "C" {
void* malloc(std::size_t bytes) {
  count(bytes);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t items, std::size_t bytes) {
  count(items * bytes);
  return __libc_calloc(items, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  count(bytes);
  return __libc_realloc(memory, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  count(bytes);
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
}
#pragma GCC visibility pop

namespace gradvane::bench {
std::int64_t bytes_allocated() noexcept { return total.load(std::memory_order_relaxed); }
}  // namespace gradvane::bench
