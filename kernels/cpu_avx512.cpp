// The AVX-512 path (F, BW, DQ, VL): the traits of cpu_run_loop.hpp, and nothing else.
#include "kernels/cpu_part.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC before 13 makes its "undefined" vectors by reading themselves, and warns where that is inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "kernels/cpu_run_limits.hpp"
#include "kernels/cpu_run_loop.hpp"

namespace gradvane::kernels {
namespace {

struct DoubleSums {
  using V = __m512d;
  static constexpr std::size_t kLanes = 8;
  static constexpr std::size_t kRunLanes = kWideLanes;
  static constexpr bool kAddsPairs = false;
  static V zero() noexcept { return _mm512_setzero_pd(); }
  static V add(V a, V b) noexcept { return _mm512_add_pd(a, b); }
  static V abs(V a) noexcept { return _mm512_abs_pd(a); }
  static V fma(V a, V b, V c) noexcept { return _mm512_fmadd_pd(a, b, c); }
  static V scale(V a, double factor) noexcept { return _mm512_mul_pd(a, _mm512_set1_pd(factor)); }
  static void add_to(V* part, const V* folded) noexcept { part[0] = add(part[0], folded[0]); }
};

struct FloatSums {
  using V = __m512;
  static constexpr std::size_t kLanes = 16;
  static constexpr std::size_t kRunLanes = kernels::kLanes;
  static constexpr bool kAddsPairs = true;
  static V zero() noexcept { return _mm512_setzero_ps(); }
  static V add(V a, V b) noexcept { return _mm512_add_ps(a, b); }
  static V abs(V a) noexcept { return _mm512_abs_ps(a); }
  static V fma(V a, V b, V c) noexcept { return _mm512_fmadd_ps(a, b, c); }
  static void add_to(__m512d* part, const V* folded) noexcept {
    const __m256 lanes =
        _mm256_add_ps(_mm512_castps512_ps256(folded[0]), _mm512_extractf32x8_ps(folded[0], 1));
    part[0] = _mm512_add_pd(part[0], _mm512_cvtps_pd(lanes));
  }
  static __m512d half(V a, std::size_t i) noexcept {
    return _mm512_cvtps_pd(i == 0 ? _mm512_castps512_ps256(a) : _mm512_extractf32x8_ps(a, 1));
  }
};

// Masks are registers of their own here, and counted by popcnt as they come.
struct Base {
  using Raw = __m512i;
  using Count = std::int64_t;
  using Total = std::int64_t;
  static constexpr bool kManyRegisters = true;
  static Raw load(const std::byte* at) noexcept { return _mm512_loadu_si512(at); }
  static Raw no_max() noexcept { return _mm512_setzero_si512(); }
  static Raw no_min() noexcept { return _mm512_set1_epi64(-1); }
  static Count no_count() noexcept { return 0; }
  static Count count(Count count, std::uint64_t mask) noexcept {
    return count + __builtin_popcountll(mask);
  }
  static bool any_counted(Count count) noexcept { return count != 0; }
  static Total fold(Total total, Count count) noexcept { return total + count; }
  static std::int64_t total(Total total) noexcept { return total; }
};

struct Ops16 : Base {
  using Element = std::uint16_t;
  using Mask = __mmask32;
  static Raw all(Element bits) noexcept { return _mm512_set1_epi16(static_cast<short>(bits)); }
  static Raw max(Raw a, Raw b) noexcept { return _mm512_max_epu16(a, b); }
  static Raw min(Raw a, Raw b) noexcept { return _mm512_min_epu16(a, b); }
  static Raw less_one(Raw a) noexcept { return _mm512_add_epi16(a, no_min()); }
  static Mask less(Raw a, Element bits) noexcept { return _mm512_cmplt_epu16_mask(a, all(bits)); }
  static Mask above(Raw a, Element bits) noexcept { return _mm512_cmpgt_epu16_mask(a, all(bits)); }
  static Mask equal(Raw a, Element bits) noexcept { return _mm512_cmpeq_epi16_mask(a, all(bits)); }
  static Mask is_zero(Raw a) noexcept { return _mm512_testn_epi16_mask(a, a); }
  static Raw clear(Raw a, Mask mask) noexcept { return _mm512_mask_blend_epi16(mask, a, no_max()); }
};

struct Ops32 : Base {
  using Element = std::uint32_t;
  using Mask = __mmask16;
  static Raw all(Element bits) noexcept { return _mm512_set1_epi32(static_cast<int>(bits)); }
  static Raw max(Raw a, Raw b) noexcept { return _mm512_max_epu32(a, b); }
  static Raw min(Raw a, Raw b) noexcept { return _mm512_min_epu32(a, b); }
  static Raw less_one(Raw a) noexcept { return _mm512_add_epi32(a, no_min()); }
  static Mask less(Raw a, Element bits) noexcept { return _mm512_cmplt_epu32_mask(a, all(bits)); }
  static Mask above(Raw a, Element bits) noexcept { return _mm512_cmpgt_epu32_mask(a, all(bits)); }
  static Mask equal(Raw a, Element bits) noexcept { return _mm512_cmpeq_epi32_mask(a, all(bits)); }
  static Mask is_zero(Raw a) noexcept { return _mm512_testn_epi32_mask(a, a); }
  static Raw clear(Raw a, Mask mask) noexcept { return _mm512_mask_blend_epi32(mask, a, no_max()); }
};

// The three dtypes that are summed in fp32.
template <class Ops, DType dtype>
struct ShortRuns : Ops {
  using typename Ops::Count;
  using typename Ops::Element;
  using typename Ops::Mask;
  using typename Ops::Raw;
  using Limits = RunLimits<dtype>;
  static constexpr Element kAbsMask = Limits::kAbsMask;
  static constexpr Element kInf = Limits::kInf;
  static constexpr bool kScaled = false;
  static constexpr bool kSubnormalsAreCommon = dtype == DType::f16;

  static __m512d factor(int) noexcept { return _mm512_set1_pd(1); }
  static Raw magnitude(Raw x) noexcept { return _mm512_and_si512(x, Ops::all(kAbsMask)); }
  static Mask is_nonfinite(Raw magnitude) noexcept { return Ops::above(magnitude, kInf - 1); }
  static Mask is_infinite(Raw magnitude) noexcept { return Ops::equal(magnitude, kInf); }
  static Mask is_neg_inf(Raw x) noexcept { return Ops::equal(x, Limits::kNegInf); }
  static Count count_small(Count count, Raw magnitude) noexcept {
    return Ops::count(count, Ops::less(magnitude, Limits::kMinNormal));
  }

  // The smallest magnitude is kept less one: a zero wraps around to the largest number.
  struct Tally {
    Raw max = Ops::no_max();
    Raw min = Ops::no_min();
    Count zero = Ops::no_count();
    void add(Raw magnitude) noexcept {
      max = Ops::max(max, magnitude);
      min = Ops::min(min, Ops::less_one(magnitude));
      zero = Ops::count(zero, Ops::is_zero(magnitude));
    }
  };
  static std::uint64_t decode_min(Element lane) noexcept {
    const auto bits = static_cast<Element>(lane + 1);
    return bits == 0 ? ~std::uint64_t{0} : bits;
  }
  static bool has_small(Raw low) noexcept { return Ops::less(low, Limits::kMinNormal) != 0; }
  static Raw from_low(Raw low) noexcept { return Ops::less_one(low); }
  static bool below_normal(Raw min) noexcept { return Ops::less(min, Limits::kMinNormal - 1) != 0; }
  static bool fits_short_run(Raw max) noexcept {
    if (Ops::above(max, Limits::kShortMax) != 0) return false;
    return Ops::above(max, Limits::kShortMin - 1) != 0 || Ops::above(max, 0) == 0;
  }
  static bool harmless(const Tally& tally, const __m512*) noexcept {
    return fits_short_run(tally.max) && (kSubnormalsAreCommon || !below_normal(tally.min));
  }
};

struct F32 : ShortRuns<Ops32, DType::f32> {
  static constexpr bool kConvertsFromMemory = false;
  static constexpr std::size_t kVectors = 2;
  static constexpr std::size_t kHalves = 1;
  static constexpr std::size_t slot(std::size_t vector, std::size_t) noexcept { return vector; }
  struct Short : FloatSums {
    static constexpr std::size_t kPerHalf = 1;
    static V value(Raw x, std::size_t, std::size_t, __m512d) noexcept {
      return _mm512_castsi512_ps(x);
    }
  };
  struct Doubles : DoubleSums {
    static constexpr std::size_t kPerHalf = 2;
    static V value(Raw x, std::size_t, std::size_t i, __m512d) noexcept {
      return FloatSums::half(_mm512_castsi512_ps(x), i);
    }
  };
};

// A 16-bit dtype, given half of a vector as fp32.
template <DType dtype, class Half>
struct Narrow : ShortRuns<Ops16, dtype>, Half {
  static constexpr std::size_t kVectors = 1;
  static constexpr std::size_t kHalves = 2;
  static constexpr std::size_t slot(std::size_t, std::size_t half) noexcept { return half; }
  struct Short : FloatSums {
    static constexpr std::size_t kPerHalf = 1;
    static V value(auto x, std::size_t half, std::size_t, __m512d) noexcept {
      return Half::floats(x, half);
    }
  };
  struct Doubles : DoubleSums {
    static constexpr std::size_t kPerHalf = 2;
    static V value(__m512i x, std::size_t half, std::size_t i, __m512d) noexcept {
      return FloatSums::half(Half::floats(x, half), i);
    }
  };
};

struct EvenOrOdd {
  static constexpr bool kConvertsFromMemory = false;
  static __m512 floats(__m512i x, std::size_t half) noexcept {
    return _mm512_castsi512_ps(half == 0 ? _mm512_slli_epi32(x, 16)
                                         : _mm512_and_si512(x, _mm512_set1_epi32(-65536)));
  }
};
struct LowerOrUpper {
  static constexpr bool kConvertsFromMemory = true;
  static __m512 floats(__m512i x, std::size_t half) noexcept {
    return _mm512_cvtph_ps(half == 0 ? _mm512_castsi512_si256(x) : _mm512_extracti64x4_epi64(x, 1));
  }
  static __m512 floats(const std::byte* at, std::size_t half) noexcept {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(at) + half));
  }
};
using Bf16 = Narrow<DType::bf16, EvenOrOdd>;
using F16 = Narrow<DType::f16, LowerOrUpper>;

// Magnitudes as doubles: their comparisons drop NaN, and the sum of squares then shows it.
struct F64 : Base {
  using Element = std::uint64_t;
  using Mask = __mmask8;
  using Limits = RunLimits<DType::f64>;
  static constexpr Element kAbsMask = Limits::kAbsMask;
  static constexpr Element kInf = Limits::kInf;
  static constexpr bool kScaled = true;
  static constexpr bool kSubnormalsAreCommon = false;
  static constexpr bool kConvertsFromMemory = false;
  static constexpr std::size_t kVectors = 2;
  static constexpr std::size_t kHalves = 1;
  static constexpr std::size_t slot(std::size_t vector, std::size_t) noexcept { return vector; }

  static __m512d doubles(Raw a) noexcept { return _mm512_castsi512_pd(a); }
  static Raw bits(__m512d a) noexcept { return _mm512_castpd_si512(a); }
  static Raw all(Element bits) noexcept { return _mm512_set1_epi64(static_cast<long long>(bits)); }
  static Mask less(Raw a, Element bits) noexcept { return _mm512_cmplt_epu64_mask(a, all(bits)); }
  static Mask above(Raw a, Element bits) noexcept { return _mm512_cmpgt_epu64_mask(a, all(bits)); }
  static Mask equal(Raw a, Element bits) noexcept { return _mm512_cmpeq_epi64_mask(a, all(bits)); }
  static Raw no_min() noexcept { return all(kInf); }
  static Raw magnitude(Raw x) noexcept { return _mm512_and_si512(x, all(kAbsMask)); }
  // Both give their second operand where the first is NaN.
  static Raw max(Raw max, Raw magnitude) noexcept {
    return bits(_mm512_max_pd(doubles(magnitude), doubles(max)));
  }
  static Raw min(Raw min, Raw magnitude) noexcept {
    return bits(_mm512_min_pd(doubles(magnitude), doubles(min)));
  }
  static Mask is_nonfinite(Raw magnitude) noexcept { return above(magnitude, kInf - 1); }
  static Mask is_infinite(Raw magnitude) noexcept { return equal(magnitude, kInf); }
  static Mask is_neg_inf(Raw x) noexcept { return equal(x, Limits::kNegInf); }
  static Count count_small(Count count, Raw magnitude) noexcept {
    return Base::count(count, less(magnitude, Limits::kMinNormal));
  }
  static Raw clear(Raw a, Mask mask) noexcept { return _mm512_mask_blend_epi64(mask, a, no_max()); }

  struct Tally {
    Raw max = no_max();
    Raw min = F64::no_min();
    Count zero = no_count();
    void add(Raw magnitude) noexcept {
      const Mask zeros = _mm512_testn_epi64_mask(magnitude, magnitude);
      max = F64::max(max, magnitude);
      min = F64::min(min, _mm512_mask_blend_epi64(zeros, magnitude, all(kInf)));
      zero = Base::count(zero, zeros);
    }
  };
  static std::uint64_t decode_min(Element lane) noexcept {
    return lane == kInf ? ~std::uint64_t{0} : lane;
  }
  static bool has_small(Raw low) noexcept { return below_normal(low); }
  static Raw from_low(Raw low) noexcept { return low; }
  static bool below_normal(Raw min) noexcept { return less(min, Limits::kMinNormal) != 0; }
  static int scale_exp_for(Raw max) noexcept {
    if (above(max, Limits::kUnscaledMax) != 0) return kScaleStep;
    return above(max, Limits::kUnscaledMin - 1) != 0 || above(max, 0) == 0 ? 0 : -kScaleStep;
  }
  // A square above 2^1000, an infinite one or a NaN fails the comparison with the lane sums.
  static bool harmless(const Tally& tally, const __m512d* sum_sq) noexcept {
    const __m512d squares = _mm512_add_pd(sum_sq[0], sum_sq[1]);
    return _mm512_cmp_pd_mask(squares, _mm512_set1_pd(0x1p1000), _CMP_NLE_UQ) == 0 &&
           !below_normal(tally.min) && scale_exp_for(tally.max) == 0;
  }

  static __m512d factor(int scale_exp) noexcept {
    return _mm512_set1_pd(scale_exp == 0 ? 1 : scale_exp > 0 ? 0x1p-600 : 0x1p600);
  }
  struct Short : DoubleSums {
    static constexpr std::size_t kPerHalf = 1;
    static V value(Raw x, std::size_t, std::size_t, __m512d) noexcept { return doubles(x); }
  };
  struct Doubles : DoubleSums {
    static constexpr std::size_t kPerHalf = 1;
    static V value(Raw x, std::size_t, std::size_t, __m512d factor) noexcept {
      return _mm512_mul_pd(doubles(x), factor);
    }
  };
};

}  // namespace

const ReadPartTable kAvx512ReadPart = {{
    RunLoop<F32>::read_part,
    RunLoop<F64>::read_part,
    RunLoop<F16>::read_part,
    RunLoop<Bf16>::read_part,
}};

}  // namespace gradvane::kernels

#else

const gradvane::kernels::ReadPartTable gradvane::kernels::kAvx512ReadPart = {};

#endif
