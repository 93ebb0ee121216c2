#include "record/incident_classes.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

namespace gradvane::record {
namespace {

TEST(IncidentClasses, HaveNamesAndTitlesOfTheirOwn) {
  std::set<std::string_view> names;
  std::set<std::string_view> titles;
  for (const IncidentClassInfo& info : kIncidentClassTable) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(titles.insert(info.title).second) << info.title;
    EXPECT_FALSE(info.title.empty() || info.opens.empty() || info.closes.empty()) << info.name;
  }
}

/// They go into JSON, TypeScript, Python and tables of Markdown as they are.
TEST(IncidentClasses, HaveWordsThatNeedNoEscaping) {
  const auto is_plain = [](std::string_view text) {
    return text.find_first_of("\"\\\n|") == std::string_view::npos;
  };
  for (const IncidentClassInfo& n : kIncidentClassTable)
    for (const auto text : {n.name, n.title, n.alert, n.opens, n.closes, n.setting})
      EXPECT_TRUE(is_plain(text)) << text;
  for (const AlertRule& rule : kAlertRules)
    for (const auto text : {rule.name, rule.group, rule.summary, rule.description})
      EXPECT_TRUE(is_plain(text)) << text;
}

TEST(IncidentClasses, AreGraveIfWhatIsTrainedMayBeLost) {
  for (const IncidentClassInfo& info : kIncidentClassTable) {
    EXPECT_EQ(info.gravity == Gravity::nonfinite, info.name.starts_with("nonfinite_")) << info.name;
    // What wakes a person up is not mild.
    EXPECT_FALSE(alert_rule(info.kind).severity == Severity::critical &&
                 info.gravity == Gravity::mild)
        << info.name;
  }
}

TEST(AlertRules, HaveRunbooksNamedAfterThem) {
  EXPECT_EQ(runbook_of(alert_rule(IncidentClass::nonfinite_grad)), "training-non-finite");
  EXPECT_EQ(runbook_of(*kRunFailedRule), "training-run-failed");
}

TEST(AlertRules, HaveNamesThatOtherProgramsDoNotUse) {
  for (const AlertRule& rule : kAlertRules) EXPECT_TRUE(rule.name.starts_with(kAlertPrefix));
}

TEST(EndReason, IsReadFromTheStateAndItsText) {
  const auto failed = [](std::string_view text) { return end_reason(RunState::failed, text); };
  EXPECT_EQ(end_reason(RunState::finished, ""), EndReason::finished);
  EXPECT_EQ(failed("SIGTERM"), EndReason::terminated);
  EXPECT_EQ(failed("interrupted (SIGINT)"), EndReason::interrupted);
  EXPECT_EQ(failed("KeyboardInterrupt"), EndReason::interrupted);
  EXPECT_EQ(failed("KeyboardInterrupt: by the user"), EndReason::interrupted);
  EXPECT_EQ(failed("exit status 3"), EndReason::exit_status);
  EXPECT_EQ(failed("stopped: step 5: a gradient is not finite"), EndReason::stopped);
  EXPECT_EQ(failed("RuntimeError: SIGTERM of a child"), EndReason::error);
  EXPECT_EQ(failed("KeyboardInterruptedError"), EndReason::error);
  EXPECT_EQ(failed(""), EndReason::error);
}

TEST(EndReason, DecidesWhoIsWoken) {
  ASSERT_NE(alert_rule(EndReason::error), nullptr);
  EXPECT_EQ(alert_rule(EndReason::error)->severity, Severity::critical);
  EXPECT_EQ(alert_rule(EndReason::exit_status), alert_rule(EndReason::error));
  EXPECT_EQ(alert_rule(EndReason::stopped), alert_rule(EndReason::error));
  ASSERT_NE(alert_rule(EndReason::terminated), nullptr);
  EXPECT_EQ(alert_rule(EndReason::terminated)->severity, Severity::warning);
  EXPECT_EQ(alert_rule(EndReason::interrupted), nullptr);
  EXPECT_EQ(alert_rule(EndReason::finished), nullptr);
}

}  // namespace
}  // namespace gradvane::record
