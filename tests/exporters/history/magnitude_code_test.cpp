#include "exporters/history/magnitude_code.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gradvane::exporters {
namespace {

TEST(MagnitudeCode, IsWithinAFifthOfAPercentAcrossTheRangeOfAFloat) {
  double worst = 0;
  for (double value = 1.2e-38; value < 3.3e38; value *= 1.0173) {
    const double back = magnitude_of(code_of(value)).value();
    worst = std::max(worst, std::abs(back / value - 1));
  }
  EXPECT_LT(worst, 0.00196);
  EXPECT_GT(worst, 0.001);  // else the loop looked at nothing hard
}

TEST(MagnitudeCode, KeepsTheOrderOfNumbers) {
  MagnitudeCode before = code_of(0.0);
  for (double value = 1e-45; value < 3e38; value *= 1.001) {
    const MagnitudeCode code = code_of(value);
    ASSERT_GE(code, before) << value;
    before = code;
  }
}

TEST(MagnitudeCode, KeepsZeroAndOnlyZeroAsZero) {
  EXPECT_EQ(magnitude_of(code_of(0.0)), 0.0);
  EXPECT_GT(magnitude_of(code_of(1e-300)).value(), 0.0);
  EXPECT_GT(magnitude_of(code_of(std::numeric_limits<double>::denorm_min())).value(), 0.0);
}

TEST(MagnitudeCode, HoldsWhatIsLargerThanAnyFloatAtTheLargest) {
  const double top = magnitude_of(code_of(1e300)).value();
  EXPECT_TRUE(std::isfinite(top));
  EXPECT_GT(top, 3.3e38);
  EXPECT_EQ(code_of(3.4028234e38), code_of(1e300));
}

TEST(MagnitudeCode, HasNoCodeForWhatIsNoMagnitude) {
  EXPECT_EQ(code_of(std::nullopt), kNoMagnitude);
  EXPECT_EQ(code_of(std::nan("")), kNoMagnitude);
  EXPECT_EQ(code_of(-1.0), kNoMagnitude);
  EXPECT_FALSE(magnitude_of(kNoMagnitude));
}

TEST(MagnitudeCode, TheLargerOfTwoIsNeverOneThatIsNotThere) {
  EXPECT_EQ(larger(code_of(2.0), kNoMagnitude), code_of(2.0));
  EXPECT_EQ(larger(kNoMagnitude, code_of(0.0)), code_of(0.0));
  EXPECT_EQ(larger(code_of(2.0), code_of(3.0)), code_of(3.0));
  EXPECT_EQ(larger(kNoMagnitude, kNoMagnitude), kNoMagnitude);
}

}  // namespace
}  // namespace gradvane::exporters
