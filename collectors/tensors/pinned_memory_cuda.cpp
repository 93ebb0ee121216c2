// A build with CUDA.
#include <cuda_runtime_api.h>

#include "collectors/tensors/pinned_memory.hpp"

namespace gradvane::collectors {

std::string pin(void* memory, std::size_t size) {
  const cudaError_t error = cudaHostRegister(memory, size, cudaHostRegisterPortable);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // it is reported here, and is not the training's
  return cudaGetErrorString(error);
}

void unpin(void* memory) noexcept {
  if (cudaHostUnregister(memory) != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace gradvane::collectors
