// The AVX2 path (with FMA and F16C): the traits of cpu_run_loop.hpp, and nothing else.
#include "kernels/cpu_part.hpp"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

#include "kernels/cpu_run_limits.hpp"
#include "kernels/cpu_run_loop.hpp"

namespace gradvane::kernels {
namespace {

struct DoubleSums {
  using V = __m256d;
  static constexpr std::size_t kLanes = 4;
  static constexpr std::size_t kRunLanes = kWideLanes;
  static constexpr bool kAddsPairs = false;
  static V zero() noexcept { return _mm256_setzero_pd(); }
  static V add(V a, V b) noexcept { return _mm256_add_pd(a, b); }
  static V abs(V a) noexcept {
    return _mm256_castsi256_pd(
        _mm256_and_si256(_mm256_castpd_si256(a), _mm256_set1_epi64x(0x7fffffffffffffff)));
  }
  static V fma(V a, V b, V c) noexcept { return _mm256_fmadd_pd(a, b, c); }
  static V scale(V a, double factor) noexcept { return _mm256_mul_pd(a, _mm256_set1_pd(factor)); }
  static void add_to(V* part, const V* folded) noexcept {
    part[0] = add(part[0], folded[0]);
    part[1] = add(part[1], folded[1]);
  }
};

struct FloatSums {
  using V = __m256;
  static constexpr std::size_t kLanes = 8;
  static constexpr std::size_t kRunLanes = kernels::kLanes;
  static constexpr bool kAddsPairs = true;
  static V zero() noexcept { return _mm256_setzero_ps(); }
  static V add(V a, V b) noexcept { return _mm256_add_ps(a, b); }
  static V abs(V a) noexcept {
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff)));
  }
  static V fma(V a, V b, V c) noexcept { return _mm256_fmadd_ps(a, b, c); }
  static void add_to(__m256d* part, const V* folded) noexcept {
    part[0] = _mm256_add_pd(part[0], half(folded[0], 0));
    part[1] = _mm256_add_pd(part[1], half(folded[0], 1));
  }
  static __m256d half(V a, std::size_t i) noexcept {
    return _mm256_cvtps_pd(i == 0 ? _mm256_castps256_ps128(a) : _mm256_extractf128_ps(a, 1));
  }
};

// A mask is a vector of 0 and -1, so counting is subtracting. A lane of a run's count stays below 256
// (16 rows of at most 4 vectors), which lets one instruction widen all of them to 64 bits.
struct Base {
  using Raw = __m256i;
  using Mask = __m256i;
  using Count = __m256i;
  using Total = __m256i;
  static constexpr bool kManyRegisters = false;
  static Raw load(const std::byte* at) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(at));
  }
  static Raw no_max() noexcept { return _mm256_setzero_si256(); }
  static Raw no_min() noexcept { return _mm256_set1_epi64x(-1); }
  static Count no_count() noexcept { return _mm256_setzero_si256(); }
  static bool any(Raw bits) noexcept { return _mm256_testz_si256(bits, bits) == 0; }
  static bool any_counted(Count count) noexcept { return any(count); }
  static Total fold(Total total, Count count) noexcept {
    return _mm256_add_epi64(total, _mm256_sad_epu8(count, _mm256_setzero_si256()));
  }
  static std::int64_t total(Total total) noexcept {
    std::int64_t lanes[4];
    std::memcpy(lanes, &total, sizeof(lanes));
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
  }
  static Raw clear(Raw a, Mask mask) noexcept { return _mm256_andnot_si256(mask, a); }
};

// Comparisons are signed. Magnitudes have no sign bit, so they do not notice.
struct Ops16 : Base {
  using Element = std::uint16_t;
  static Raw all(int bits) noexcept { return _mm256_set1_epi16(static_cast<short>(bits)); }
  static Raw max(Raw a, Raw b) noexcept { return _mm256_max_epu16(a, b); }
  static Raw min(Raw a, Raw b) noexcept { return _mm256_min_epu16(a, b); }
  static Raw less_one(Raw a) noexcept { return _mm256_add_epi16(a, no_min()); }
  static Raw top_bit(Raw a) noexcept { return _mm256_srli_epi16(a, 15); }
  static Mask above(Raw a, Raw b) noexcept { return _mm256_cmpgt_epi16(a, b); }
  static Mask equal(Raw a, Raw b) noexcept { return _mm256_cmpeq_epi16(a, b); }
  static Count add(Count a, Count b) noexcept { return _mm256_add_epi16(a, b); }
  static Count count(Count count, Mask mask) noexcept { return _mm256_sub_epi16(count, mask); }
};

struct Ops32 : Base {
  using Element = std::uint32_t;
  static Raw all(int bits) noexcept { return _mm256_set1_epi32(bits); }
  static Raw max(Raw a, Raw b) noexcept { return _mm256_max_epu32(a, b); }
  static Raw min(Raw a, Raw b) noexcept { return _mm256_min_epu32(a, b); }
  static Raw less_one(Raw a) noexcept { return _mm256_add_epi32(a, no_min()); }
  static Raw top_bit(Raw a) noexcept { return _mm256_srli_epi32(a, 31); }
  static Mask above(Raw a, Raw b) noexcept { return _mm256_cmpgt_epi32(a, b); }
  static Mask equal(Raw a, Raw b) noexcept { return _mm256_cmpeq_epi32(a, b); }
  static Count add(Count a, Count b) noexcept { return _mm256_add_epi32(a, b); }
  static Count count(Count count, Mask mask) noexcept { return _mm256_sub_epi32(count, mask); }
};

// The three dtypes that are summed in fp32.
template <class Ops, DType dtype>
struct ShortRuns : Ops {
  using typename Ops::Count;
  using typename Ops::Element;
  using typename Ops::Mask;
  using typename Ops::Raw;
  using Limits = RunLimits<dtype>;
  static constexpr int kAbsMask = Limits::kAbsMask;
  static constexpr int kInf = Limits::kInf;
  static constexpr int kMinNormal = Limits::kMinNormal;
  static constexpr int kShortMin = Limits::kShortMin;
  static constexpr int kShortMax = Limits::kShortMax;
  static constexpr bool kScaled = false;
  static constexpr bool kSubnormalsAreCommon = dtype == DType::f16;

  static __m256d factor(int) noexcept { return _mm256_set1_pd(1); }
  static Raw magnitude(Raw x) noexcept { return _mm256_and_si256(x, Ops::all(kAbsMask)); }
  static Mask is_nonfinite(Raw magnitude) noexcept {
    return Ops::above(magnitude, Ops::all(kInf - 1));
  }
  static Mask is_infinite(Raw magnitude) noexcept { return Ops::equal(magnitude, Ops::all(kInf)); }
  static Mask is_neg_inf(Raw x) noexcept { return Ops::equal(x, Ops::all(kInf | ~kAbsMask)); }
  static Count count_small(Count count, Raw magnitude) noexcept {
    return Ops::count(count, Ops::above(Ops::all(kMinNormal), magnitude));
  }

  // The smallest magnitude is kept less one: a zero wraps around, to be the largest number and the
  // only one with a top bit. That saves the registers of a comparison with zero, and spilling one sum
  // makes the loop wait for memory at every row.
  struct Tally {
    Raw max = Ops::no_max();
    Raw min = Ops::no_min();
    Count zero = Ops::no_count();
    void add(Raw magnitude) noexcept {
      const Raw less_one = Ops::less_one(magnitude);
      max = Ops::max(max, magnitude);
      min = Ops::min(min, less_one);
      zero = Ops::add(zero, Ops::top_bit(less_one));
    }
  };
  static std::uint64_t decode_min(Element lane) noexcept {
    const auto bits = static_cast<Element>(lane + 1);
    return bits == 0 ? ~std::uint64_t{0} : bits;
  }
  static bool has_small(Raw low) noexcept {
    return Ops::any(Ops::above(Ops::all(kMinNormal), low));
  }
  static Raw from_low(Raw low) noexcept { return Ops::less_one(low); }
  static bool below_normal(Raw min) noexcept {
    return Ops::any(Ops::equal(Ops::min(min, Ops::all(kMinNormal - 2)), min));
  }
  static bool fits_short_run(Raw max) noexcept {
    if (Ops::any(Ops::above(max, Ops::all(kShortMax)))) return false;
    return Ops::any(Ops::above(max, Ops::all(kShortMin - 1))) || !Ops::any(max);
  }
  static bool harmless(const Tally& tally, const __m256*) noexcept {
    return fits_short_run(tally.max) && (kSubnormalsAreCommon || !below_normal(tally.min));
  }
};

struct F32 : ShortRuns<Ops32, DType::f32> {
  static constexpr bool kConvertsFromMemory = false;
  static constexpr std::size_t kVectors = 4;
  static constexpr std::size_t kHalves = 1;
  static constexpr std::size_t slot(std::size_t vector, std::size_t) noexcept { return vector; }
  struct Short : FloatSums {
    static constexpr std::size_t kPerHalf = 1;
    static V value(Raw x, std::size_t, std::size_t, __m256d) noexcept {
      return _mm256_castsi256_ps(x);
    }
  };
  struct Doubles : DoubleSums {
    static constexpr std::size_t kPerHalf = 2;
    static V value(Raw x, std::size_t, std::size_t i, __m256d) noexcept {
      return FloatSums::half(_mm256_castsi256_ps(x), i);
    }
  };
};

// A 16-bit dtype, given half of a vector as fp32.
template <DType dtype, class Half>
struct Narrow : ShortRuns<Ops16, dtype>, Half {
  static constexpr std::size_t kVectors = 2;
  static constexpr std::size_t kHalves = 2;
  struct Short : FloatSums {
    static constexpr std::size_t kPerHalf = 1;
    static V value(auto x, std::size_t half, std::size_t, __m256d) noexcept {
      return Half::floats(x, half);
    }
  };
  struct Doubles : DoubleSums {
    static constexpr std::size_t kPerHalf = 2;
    static V value(__m256i x, std::size_t half, std::size_t i, __m256d) noexcept {
      return FloatSums::half(Half::floats(x, half), i);
    }
  };
};

struct EvenOrOdd {
  static constexpr bool kConvertsFromMemory = false;
  static constexpr std::size_t slot(std::size_t vector, std::size_t half) noexcept {
    return half * 2 + vector;
  }
  static __m256 floats(__m256i x, std::size_t half) noexcept {
    return _mm256_castsi256_ps(half == 0 ? _mm256_slli_epi32(x, 16)
                                         : _mm256_and_si256(x, _mm256_set1_epi32(-65536)));
  }
};
struct LowerOrUpper {
  static constexpr bool kConvertsFromMemory = true;
  static constexpr std::size_t slot(std::size_t vector, std::size_t half) noexcept {
    return vector * 2 + half;
  }
  static __m256 floats(__m256i x, std::size_t half) noexcept {
    return _mm256_cvtph_ps(half == 0 ? _mm256_castsi256_si128(x) : _mm256_extracti128_si256(x, 1));
  }
  static __m256 floats(const std::byte* at, std::size_t half) noexcept {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(at) + half));
  }
};
using Bf16 = Narrow<DType::bf16, EvenOrOdd>;
using F16 = Narrow<DType::f16, LowerOrUpper>;

// Magnitudes as doubles: there is no 64-bit integer maximum here. Their comparisons drop NaN, and the
// sum of squares then shows it.
struct F64 : Base {
  using Element = std::uint64_t;
  using Limits = RunLimits<DType::f64>;
  static constexpr Element kAbsMask = Limits::kAbsMask;
  static constexpr Element kInf = Limits::kInf;
  static constexpr bool kScaled = true;
  static constexpr bool kSubnormalsAreCommon = false;
  static constexpr bool kConvertsFromMemory = false;
  static constexpr std::size_t kVectors = 4;
  static constexpr std::size_t kHalves = 1;
  static constexpr std::size_t slot(std::size_t vector, std::size_t) noexcept { return vector; }

  static __m256d doubles(Raw a) noexcept { return _mm256_castsi256_pd(a); }
  static Raw bits(__m256d a) noexcept { return _mm256_castpd_si256(a); }
  static Raw all(Element bits) noexcept { return _mm256_set1_epi64x(static_cast<long long>(bits)); }
  static Mask above(Raw a, Element bits) noexcept { return _mm256_cmpgt_epi64(a, all(bits)); }
  static Mask less(Raw a, Element bits) noexcept { return _mm256_cmpgt_epi64(all(bits), a); }
  static Mask equal(Raw a, Element bits) noexcept { return _mm256_cmpeq_epi64(a, all(bits)); }
  static Count count(Count count, Mask mask) noexcept { return _mm256_sub_epi64(count, mask); }
  static Raw no_min() noexcept { return all(kInf); }
  static Raw magnitude(Raw x) noexcept { return _mm256_and_si256(x, all(kAbsMask)); }
  // Both give their second operand where the first is NaN.
  static Raw max(Raw max, Raw magnitude) noexcept {
    return bits(_mm256_max_pd(doubles(magnitude), doubles(max)));
  }
  static Raw min(Raw min, Raw magnitude) noexcept {
    return bits(_mm256_min_pd(doubles(magnitude), doubles(min)));
  }
  static Mask is_nonfinite(Raw magnitude) noexcept { return above(magnitude, kInf - 1); }
  static Mask is_infinite(Raw magnitude) noexcept { return equal(magnitude, kInf); }
  static Mask is_neg_inf(Raw x) noexcept { return equal(x, Limits::kNegInf); }
  static Count count_small(Count count, Raw magnitude) noexcept {
    return F64::count(count, less(magnitude, Limits::kMinNormal));
  }

  struct Tally {
    Raw max = no_max();
    Raw min = F64::no_min();
    Count zero = no_count();
    void add(Raw magnitude) noexcept {
      const Mask is_zero = equal(magnitude, 0);
      max = F64::max(max, magnitude);
      min = F64::min(min, _mm256_or_si256(magnitude, is_zero));  // a zero becomes NaN
      zero = F64::count(zero, is_zero);
    }
  };
  static std::uint64_t decode_min(Element lane) noexcept {
    return lane == kInf ? ~std::uint64_t{0} : lane;
  }
  static bool has_small(Raw low) noexcept { return below_normal(low); }
  static Raw from_low(Raw low) noexcept { return low; }
  static bool below_normal(Raw min) noexcept { return any(less(min, Limits::kMinNormal)); }
  static int scale_exp_for(Raw max) noexcept {
    if (any(above(max, Limits::kUnscaledMax))) return kScaleStep;
    return any(above(max, Limits::kUnscaledMin - 1)) || !any(max) ? 0 : -kScaleStep;
  }
  // A square above 2^1000, an infinite one or a NaN fails the comparison with the lane sums.
  static bool harmless(const Tally& tally, const __m256d* sum_sq) noexcept {
    const __m256d squares =
        _mm256_add_pd(_mm256_add_pd(sum_sq[0], sum_sq[1]), _mm256_add_pd(sum_sq[2], sum_sq[3]));
    const __m256d failed = _mm256_cmp_pd(squares, _mm256_set1_pd(0x1p1000), _CMP_NLE_UQ);
    return !any(bits(failed)) && !below_normal(tally.min) && scale_exp_for(tally.max) == 0;
  }

  static __m256d factor(int scale_exp) noexcept {
    return _mm256_set1_pd(scale_exp == 0 ? 1 : scale_exp > 0 ? 0x1p-600 : 0x1p600);
  }
  struct Short : DoubleSums {
    static constexpr std::size_t kPerHalf = 1;
    static V value(Raw x, std::size_t, std::size_t, __m256d) noexcept { return doubles(x); }
  };
  struct Doubles : DoubleSums {
    static constexpr std::size_t kPerHalf = 1;
    static V value(Raw x, std::size_t, std::size_t, __m256d factor) noexcept {
      return _mm256_mul_pd(doubles(x), factor);
    }
  };
};

}  // namespace

const ReadPartTable kAvx2ReadPart = {{
    RunLoop<F32>::read_part,
    RunLoop<F64>::read_part,
    RunLoop<F16>::read_part,
    RunLoop<Bf16>::read_part,
}};

}  // namespace gradvane::kernels

#else

const gradvane::kernels::ReadPartTable gradvane::kernels::kAvx2ReadPart = {};

#endif
