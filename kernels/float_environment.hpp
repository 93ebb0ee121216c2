#pragma once
// The floating-point state that the pass computes under, whatever the training program set.
#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace gradvane::kernels {

/// While it lives, this thread rounds to nearest, keeps subnormals and takes no floating-point trap:
/// `torch.set_flush_denormal(True)` would turn subnormal gradients into zeros of the norm, and a
/// program that traps on invalid operations must not die of our reading its NaN. Then everything,
/// exception flags too, is as it was.
class DefaultFloatEnvironment {
 public:
#if defined(__x86_64__)
  DefaultFloatEnvironment() noexcept : saved_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~DefaultFloatEnvironment() { _mm_setcsr(saved_); }
#else
  DefaultFloatEnvironment() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
#endif
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;  // restores once
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kDefault = 0x1f80;  // MXCSR after reset: all exceptions masked
  unsigned saved_;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace gradvane::kernels
