#pragma once
// A CUDA runtime for programs without a device, in place of the real one in the program it is linked
// into: device memory is the host's, streams are done at once unless they are told to hang, and kernels
// run on fibers. What would make a host wait for a device is counted.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <set>
#include <vector>

namespace gradvane::kernels::test {

struct FakeCuda {
  int devices = 1;
  int allocations = 0;       ///< of a device's memory and of page-locked memory
  int frees = 0;             ///< each waits for all that its device does
  int waits = 0;             ///< for an event; for a stream, but for our own at set-up
  int endless_waits = 0;     ///< of them, those for what hangs
  int launches = 0;          ///< of kernels, which were run
  bool hangs = false;        ///< what is enqueued from now on never ends
  bool has_memory = true;    ///< to allocate
  bool runs_kernels = true;  ///< else a launch is only counted
  std::set<cudaStream_t> capturing;
  cudaError_t capture_query = cudaSuccess;    ///< what cudaStreamIsCapturing comes to
  cudaError_t set_up = cudaSuccess;           ///< what a copy to the device comes to
  std::vector<cudaError_t> launches_to_come;  ///< what the next ones come to, then success
  cudaError_t last_error = cudaSuccess;
  int current = 0;
  std::vector<int> made_current;  ///< devices, by cudaSetDevice
};

/// The one of this program.
FakeCuda& fake_cuda();

}  // namespace gradvane::kernels::test
