#pragma once
// Places in RunningTotals, which are arrays by site and by kind.
#include "kernels/running_totals.hpp"

namespace gradvane::kernels::test {

inline constexpr auto kLoss = static_cast<int>(Site::loss);
inline constexpr auto kGrad = static_cast<int>(Site::grad);
inline constexpr auto kWeight = static_cast<int>(Site::weight);
inline constexpr auto kNan = static_cast<int>(NonfiniteKind::nan);
inline constexpr auto kPosInf = static_cast<int>(NonfiniteKind::pos_inf);
inline constexpr auto kNegInf = static_cast<int>(NonfiniteKind::neg_inf);

}  // namespace gradvane::kernels::test
