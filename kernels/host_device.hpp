#pragma once
// The macros of the kernel layer: arithmetic and control flow that the CPU pass, the CUDA pass and the
// tests share.
#ifdef __CUDACC__
#define GRADVANE_HOST_DEVICE __host__ __device__
#else
#define GRADVANE_HOST_DEVICE
#endif

#ifdef __CUDACC__
#define GRADVANE_OUT_OF_LINE __noinline__
#else
#define GRADVANE_OUT_OF_LINE
#endif

/// Before a loop that a device must not unroll: code that runs once is fetched, each line of it a wait.
#ifdef __CUDA_ARCH__
#define GRADVANE_ROLL _Pragma("unroll 1")
#else
#define GRADVANE_ROLL
#endif

/// Before a loop that a device must unroll to keep its arrays in registers.
#ifdef __CUDA_ARCH__
#define GRADVANE_UNROLL _Pragma("unroll")
#else
#define GRADVANE_UNROLL
#endif
