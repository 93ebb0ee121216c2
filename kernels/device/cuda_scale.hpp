#pragma once
// The kernel that CudaPass::clip() launches. Everything it does is in scale_program.hpp.

namespace gradvane::kernels::device {

/// Takes a Launch<kFewPointers> if `few`, else a Launch<kManyPointers>, and blocks of kThreads.
[[nodiscard]] const void* scale_kernel(bool few) noexcept;

}  // namespace gradvane::kernels::device
