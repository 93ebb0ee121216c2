#include "examples/char_gpt/fault.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace char_gpt {
namespace {

using testing::HasSubstr;

std::string refusal(std::string_view text) {
  try {
    const Fault fault = parse_fault(text);
    return "accepted as " + fault.kind;
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(Fault, IsReadWithAndWithoutItsOptionalParts) {
  EXPECT_EQ(parse_fault("nan@50"), (Fault{.kind = "nan", .step = 50}));
  EXPECT_EQ(parse_fault("inf@1:final_norm.bias"),
            (Fault{.kind = "inf", .step = 1, .param = "final_norm.bias"}));
  EXPECT_EQ(parse_fault("-inf@7,transient"), (Fault{.kind = "-inf", .step = 7, .transient = true}));
  EXPECT_EQ(parse_fault("nan@9:a.b,transient"),
            (Fault{.kind = "nan", .step = 9, .param = "a.b", .transient = true}));
}

TEST(Fault, ComesAgainWhereItSaysAfterHowManySteps) {
  const Fault often = parse_fault("nan@50/20:a.b");
  EXPECT_EQ(often, (Fault{.kind = "nan", .step = 50, .every = 20, .param = "a.b"}));
  for (const std::int64_t step : {50, 70, 90, 1050}) EXPECT_TRUE(often.is_due(step)) << step;
  for (const std::int64_t step : {1, 10, 30, 49, 51, 60, 80}) EXPECT_FALSE(often.is_due(step));
  EXPECT_TRUE(parse_fault("nan@50").is_due(50));
  EXPECT_FALSE(parse_fault("nan@50").is_due(100));
}

TEST(Fault, HasTheValueItIsNamedAfter) {
  EXPECT_TRUE(std::isnan(parse_fault("nan@1").value()));
  EXPECT_EQ(parse_fault("inf@1").value(), HUGE_VAL);
  EXPECT_EQ(parse_fault("-inf@1").value(), -HUGE_VAL);
}

TEST(Fault, SaysWhatIsWrongAndWhatItReads) {
  EXPECT_THAT(refusal("nan"), HasSubstr("no '@STEP'"));
  EXPECT_THAT(refusal("zero@5"), HasSubstr("the kind 'zero' is none of nan, inf, -inf"));
  EXPECT_THAT(refusal("@5"), HasSubstr("the kind ''"));
  EXPECT_THAT(refusal("nan@"), HasSubstr("the step ''"));
  EXPECT_THAT(refusal("nan@0"), HasSubstr("the step '0' is not a number from 1 on"));
  EXPECT_THAT(refusal("nan@-3"), HasSubstr("the step '-3'"));
  EXPECT_THAT(refusal("nan@5x"), HasSubstr("the step '5x'"));
  EXPECT_THAT(refusal("nan@5/"), HasSubstr("the number of steps '' is not a number from 1 on"));
  EXPECT_THAT(refusal("nan@5/0"), HasSubstr("the number of steps '0'"));
  EXPECT_THAT(refusal("nan@99999999999999999999"), HasSubstr("is not a number"));
  EXPECT_THAT(refusal("nan@5:"), HasSubstr("no parameter behind the colon"));
  EXPECT_THAT(refusal("nan@5,transiet"), HasSubstr("'transiet' behind the comma"));
  EXPECT_THAT(refusal("nan@5:a,"), HasSubstr("'' behind the comma"));
  EXPECT_THAT(refusal("nan@0"), HasSubstr("KIND@STEP[/EVERY][:PARAM][,transient|,state]"));
}

}  // namespace
}  // namespace char_gpt
