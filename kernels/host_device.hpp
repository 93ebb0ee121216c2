#pragma once
// The one macro of the kernel layer: arithmetic that the CPU pass, the CUDA pass and the tests share.
#ifdef __CUDACC__
#define GRADVANE_HOST_DEVICE __host__ __device__
#else
#define GRADVANE_HOST_DEVICE
#endif
