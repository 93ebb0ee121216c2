#include "record/names.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string_view>
#include <utility>

#include "record/incident.hpp"
#include "record/metric_catalogue.hpp"
#include "record/numbers.hpp"
#include "record/run/run_info.hpp"
#include "record/sync_summary.hpp"

namespace gradvane::record {
namespace {

/// An enumerator as the compiler spells it: "loss" for Site::loss; a number in parentheses for a value that is none.
template <auto value>
constexpr std::string_view spelling() {
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find("value = ") + 8);
  text = text.substr(0, text.find_first_of(";]"));
  return text.starts_with('(') ? text : text.substr(text.rfind(':') + 1);
}

template <has_names E, std::size_t... index>
void expect_names_are_spelled(std::index_sequence<index...> /*indices*/) {
  constexpr std::array kSpelled{spelling<static_cast<E>(index)>()...};
  for (std::size_t i = 0; i < kSpelled.size(); ++i) EXPECT_EQ(kNames<E>[i], kSpelled[i]);
  constexpr std::string_view kBehind = spelling<static_cast<E>(sizeof...(index))>();
  EXPECT_TRUE(kBehind.starts_with('(')) << kBehind << " has no name";
}

template <typename E>
class Enumeration : public testing::Test {};
using Enumerations =
    testing::Types<ReadAt, Site, NonfiniteKind, Phase, ParamState, SkipReason, SyncKind, SyncOrigin,
                   SyncSource, SyncReason, SyncPart, SyncDrop, RunState, IncidentClass, Gravity,
                   Severity, BeganIn, TracedAt, MetricType, Unit, Join>;
TYPED_TEST_SUITE(Enumeration, Enumerations);

TYPED_TEST(Enumeration, HasEachOfItsEnumeratorsByName) {
  expect_names_are_spelled<TypeParam>(
      std::make_index_sequence<static_cast<std::size_t>(kCount<TypeParam>)>());
}

TYPED_TEST(Enumeration, IsFoundByItsNames) {
  for (int i = 0; i < kCount<TypeParam>; ++i) {
    const auto value = static_cast<TypeParam>(i);
    EXPECT_EQ(named<TypeParam>(name_of(value)), value);
    EXPECT_EQ(index_of(value), static_cast<std::size_t>(i));
  }
  EXPECT_FALSE(named<TypeParam>("").has_value());
  EXPECT_FALSE(named<TypeParam>("no such name").has_value());
}

TEST(Names, EveryEnumeratorHasItsWord) {
  EXPECT_EQ(name_of(ReadAt::clip), "clip");
  EXPECT_EQ(name_of(ReadAt::scaler), "scaler");
  EXPECT_EQ(name_of(ReadAt::backward), "backward");
  EXPECT_EQ(name_of(Site::weight), "weight");
  EXPECT_EQ(name_of(NonfiniteKind::neg_inf), "neg_inf");
  EXPECT_EQ(name_of(Phase::other), "other");
  EXPECT_EQ(name_of(ParamState::unsupported), "unsupported");
  EXPECT_EQ(name_of(SkipReason::none), "none");
  EXPECT_EQ(name_of(SkipReason::loop), "loop");
  EXPECT_EQ(name_of(RunState::failed), "failed");
  EXPECT_EQ(name_of(IncidentClass::nonfinite_weight), "nonfinite_weight");
  EXPECT_EQ(name_of(IncidentClass::own_sync_budget), "own_sync_budget");
  EXPECT_EQ(name_of(SyncKind::d2h_read), "d2h_read");
  EXPECT_EQ(name_of(SyncKind::rejected_in_capture), "rejected_in_capture");
  EXPECT_EQ(name_of(SyncOrigin::profiler), "profiler");
  EXPECT_EQ(name_of(SyncSource::shared), "shared");
  EXPECT_EQ(name_of(SyncReason::lost), "lost");
  EXPECT_EQ(kNames<SyncDrop>[index_of(SyncDrop::unbalanced)], "unbalanced");
}

}  // namespace
}  // namespace gradvane::record
