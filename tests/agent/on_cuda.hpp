#pragma once
// A test that needs a CUDA device: it is skipped where there is none, and fails there if one is promised.
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cstdlib>
#include <string>

namespace gradvane::test {

class OnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (torch::cuda::is_available()) return;
    const char* must_run = std::getenv("GRADVANE_GPU_TESTS_MUST_RUN");
    if (must_run != nullptr && std::string(must_run) == "1") FAIL() << "no CUDA device";
    GTEST_SKIP() << "no CUDA device";
  }
};

}  // namespace gradvane::test
