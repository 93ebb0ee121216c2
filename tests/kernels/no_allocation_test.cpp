// A step allocates nothing: not the pass, not the ring, not its reader once it has grown.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "kernels/cpu_pass.hpp"
#include "kernels/result_ring.hpp"

namespace {

std::atomic<int> allocations{0};

void* allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Not inlined: GCC would see free() meet a new expression, and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return allocate(bytes, 16); }
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace gradvane::kernels {
namespace {

TEST(AStep, AllocatesNothing) {
  const std::vector<float> values(100'000, 0.5f);
  const std::vector<TensorShape> shapes(20, TensorShape{5000, DType::f32});
  const std::vector<Site> sites(20, Site::grad);
  std::vector<const void*> data;
  for (std::size_t i = 0; i < 20; ++i) data.push_back(values.data() + i * 5000);
  std::vector<TensorStats> stats(20);
  std::vector<TensorStats> received;
  SlotHeader header;

  CpuPass pass{ChunkPlan(shapes)};
  ResultRing ring(4, 20);
  RingProducer producer(ring);
  RingReader reader(ring);
  const auto step = [&] {
    pass.run_blocks(data, 0, pass.blocks());
    pass.finish(stats);
    producer.publish(1, sites, stats);
    return reader.read_next(header, received).status;
  };
  ASSERT_EQ(step(), ReadStatus::ok);
  const int before = allocations;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(step(), ReadStatus::ok);
  EXPECT_EQ(allocations, before);
  EXPECT_GT(before, 0) << "the counter counts nothing";
}

}  // namespace
}  // namespace gradvane::kernels
