#include "agent/step/facts/step_counts.hpp"

#include <gtest/gtest.h>

namespace gradvane::agent {
namespace {

collectors::StepFacts facts_of(const StepCounts& counts, std::int32_t backwards = 0) {
  collectors::StepFacts facts;
  counts.write_to(facts, backwards);
  return facts;
}

TEST(StepCounts, WhatTheLoopDoesNotReportIsAbsentAndNotZero) {
  StepCounts counts;
  EXPECT_EQ(facts_of(counts).tokens, -1);
  EXPECT_EQ(facts_of(counts).samples, -1);
  counts.add_tokens(0);
  EXPECT_EQ(facts_of(counts).tokens, 0);
  EXPECT_EQ(facts_of(counts).samples, -1);
}

TEST(StepCounts, CallsAddUp) {
  StepCounts counts;
  counts.add_tokens(1000);
  counts.add_tokens(24);
  counts.add_samples(8);
  EXPECT_EQ(facts_of(counts).tokens, 1024);
  EXPECT_EQ(facts_of(counts).samples, 8);
}

TEST(StepCounts, TheBackwardPassOfTheStepItselfIsAMicroStepToo) {
  StepCounts counts;
  EXPECT_EQ(facts_of(counts).micro_steps, 1);
  counts.add_micro_step();
  counts.add_micro_step();
  EXPECT_EQ(facts_of(counts).micro_steps, 3);
}

TEST(StepCounts, BackwardPassesThatWereSeenOverrideReportedMicroSteps) {
  StepCounts counts;
  counts.add_micro_step();
  EXPECT_EQ(facts_of(counts, 4).micro_steps, 4);
}

TEST(StepCounts, NothingIsLeftOfAForgottenStep) {
  StepCounts counts;
  counts.add_micro_step();
  counts.add_tokens(7);
  counts.clear();
  EXPECT_EQ(facts_of(counts).micro_steps, 1);
  EXPECT_EQ(facts_of(counts).tokens, -1);
}

}  // namespace
}  // namespace gradvane::agent
