#pragma once
// std::hypot as glibc has had it since 2.2.5. The name alone would bind to that of glibc 2.35, and a wheel would then
// not load on RHEL 9, which has 2.34.
#include <cmath>

#if defined(__x86_64__) && defined(__GLIBC__)
__asm__(".symver hypot,hypot@GLIBC_2.2.5");
#endif
