#include "agent/step/facts/device_memory_facts.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace gradvane::agent {
namespace {

using collectors::DeviceMemoryUse;
using collectors::StepFacts;

StepFacts facts_after(DeviceMemoryFacts& memory, const DeviceMemoryUse& use) {
  StepFacts facts;
  memory.put(use, facts);
  return facts;
}

TEST(DeviceMemoryFacts, BytesAreThoseOfTheMoment) {
  DeviceMemoryFacts memory;
  (void)facts_after(memory, {.allocated_bytes = 9, .reserved_bytes = 20, .peak_bytes = 15});
  const StepFacts facts = facts_after(
      memory, {.allocated_bytes = 5, .reserved_bytes = 8, .peak_bytes = 6, .limit_bytes = 40});
  EXPECT_EQ(facts.device_allocated_bytes, 5);
  EXPECT_EQ(facts.device_reserved_bytes, 8);
  EXPECT_EQ(facts.device_peak_bytes, 6) << "the program has reset torch's peak";
  EXPECT_EQ(facts.device_limit_bytes, 40);
}

TEST(DeviceMemoryFacts, CountsGoOnWhenTheProgramResetsTorchs) {
  DeviceMemoryFacts memory;
  std::vector<std::int64_t> retries;
  std::vector<std::int64_t> failures;
  // torch.cuda.reset_accumulated_memory_stats() before the third and the fifth look.
  for (const auto& [retried, failed] : {std::pair{2, 1}, {5, 1}, {1, 0}, {1, 0}, {0, 3}, {4, 3}}) {
    const StepFacts facts =
        facts_after(memory, {.allocation_retries = retried, .out_of_memory = failed});
    retries.push_back(facts.device_allocation_retries);
    failures.push_back(facts.device_out_of_memory);
  }
  EXPECT_EQ(retries, (std::vector<std::int64_t>{2, 5, 6, 6, 6, 10}));
  EXPECT_EQ(failures, (std::vector<std::int64_t>{1, 1, 1, 1, 4, 4}));
}

TEST(DeviceMemoryFacts, WhatWasNotMeasuredIsNotZero) {
  DeviceMemoryFacts memory;
  StepFacts facts;
  memory.put(std::nullopt, facts);
  EXPECT_EQ(facts.device_allocated_bytes, -1);
  EXPECT_EQ(facts.device_peak_bytes, -1);
  EXPECT_EQ(facts.device_limit_bytes, -1);
  EXPECT_EQ(facts.device_allocation_retries, -1);
}

TEST(DeviceMemoryFacts, OneStepInThirtyTwoReadsItAndNoneWithoutADevice) {
  int due = 0;
  for (std::int64_t step = 1; step <= 320; ++step) {
    due += DeviceMemoryFacts::is_due(1, step) ? 1 : 0;
    EXPECT_FALSE(DeviceMemoryFacts::is_due(0, step));
  }
  EXPECT_EQ(due, 10);
}

}  // namespace
}  // namespace gradvane::agent
