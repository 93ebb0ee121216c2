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
  EXPECT_EQ(runbook_of(alert_rule(IncidentClass::nonfinite_grad)), "training-non-finite.md");
  EXPECT_EQ(runbook_of(*kRunFailedRule), "training-run-failed.md");
}

}  // namespace
}  // namespace gradvane::record
