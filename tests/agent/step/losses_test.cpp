#include "agent/step/facts/losses.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <limits>

namespace gradvane::agent {
namespace {

using From = Losses::From;

class LossesTest : public testing::Test {
 protected:
  void add(double value, From from) { losses_.add(at::scalar_tensor(value), from, reads_); }
  collectors::DeviceReads reads_;
  Losses losses_;
};

TEST_F(LossesTest, ThoseOfTheLoopAreAveraged) {
  for (const double value : {1.0, 2.0, 6.0}) add(value, From::loop);
  EXPECT_EQ(losses_.host_value(), 3);
}

TEST_F(LossesTest, RootsOfBackwardPassesAreAddedUp) {
  for (const double value : {1.0, 2.0, 6.0}) add(value, From::backward);
  EXPECT_EQ(losses_.host_value(), 9);
}

TEST_F(LossesTest, OneOfTheLoopOutdoesEveryRootBeforeAndAfterIt) {
  add(100, From::backward);
  add(3, From::loop);
  add(200, From::backward);
  EXPECT_EQ(losses_.host_value(), 3);
}

TEST_F(LossesTest, ClearedItKnowsNothing) {
  add(3, From::loop);
  losses_.clear();
  EXPECT_FALSE(losses_.any());
  add(5, From::backward);
  EXPECT_EQ(losses_.host_value(), 5) << "it is a sum again";
}

TEST_F(LossesTest, WhatIsNoSingleNumberIsLeftOut) {
  losses_.add(at::ones({3}), From::loop, reads_);
  losses_.add(at::Tensor(), From::loop, reads_);
  EXPECT_FALSE(losses_.any());
}

TEST_F(LossesTest, NotANumberIsALossLikeAnyOther) {
  add(1, From::backward);
  add(std::numeric_limits<double>::quiet_NaN(), From::backward);
  EXPECT_NE(losses_.host_value(), losses_.host_value());
}

}  // namespace
}  // namespace gradvane::agent
