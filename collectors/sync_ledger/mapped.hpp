#pragma once
// An array of plain data straight from the system: all zero, touched only where it is used, never freed,
// since a callback may be in it at any time.
#include <sys/mman.h>

#include <cstddef>
#include <type_traits>

namespace gradvane::collectors {

template <typename T>
class Mapped {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  /// False where there is no memory.
  bool map(std::size_t count) noexcept {
    void* memory = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    items_ = static_cast<T*>(memory);
    return true;
  }
  [[nodiscard]] T& operator[](std::size_t i) const noexcept { return items_[i]; }
  /// Makes pages that lie wholly within an item zero again, and the rest of it.
  void clear(std::size_t i) const noexcept {
    static_assert(sizeof(T) % 4096 == 0);
    (void)::madvise(&items_[i], sizeof(T), MADV_DONTNEED);
  }

 private:
  T* items_ = nullptr;
};

}  // namespace gradvane::collectors
