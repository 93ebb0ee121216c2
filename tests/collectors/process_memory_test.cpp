#include "collectors/process_memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace gradvane::collectors {
namespace {

/// VmRSS as /proc/self/status has it: another file of the same account, in kB.
std::int64_t resident_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("VmRSS:")) continue;
    std::int64_t kilobytes = 0;
    std::istringstream(line.substr(6)) >> kilobytes;
    return kilobytes;
  }
  return -1;
}

TEST(ProcessMemory, IsWhatTheKernelSaysElsewhere) {
  const auto bytes = resident_bytes();
  ASSERT_TRUE(bytes);
  // The kernel adds up per-thread counters now and then only.
  EXPECT_NEAR(static_cast<double>(*bytes), 1024.0 * static_cast<double>(resident_kilobytes()),
              8 << 20);
}

TEST(ProcessMemory, GrowsWithMemoryThatIsTouched) {
  constexpr std::int64_t kBytes = 64 << 20;
  const auto before = resident_bytes();
  ASSERT_TRUE(before);
  std::vector<char> memory(kBytes, 'x');
  const auto after = resident_bytes();
  ASSERT_TRUE(after);
  EXPECT_GE(*after - *before, kBytes / 2) << memory[memory.size() / 2];
}

}  // namespace
}  // namespace gradvane::collectors
