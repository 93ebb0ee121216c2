#include "exporters/alert_push/alert_labels.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace gradvane::exporters {
namespace {

std::string why_refused(const std::string& name, const std::string& value) {
  try {
    check_alert_labels({{name, value}});
    return "it was not";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(AlertLabels, AreWhatPrometheusPutsOnATarget) {
  EXPECT_NO_THROW(check_alert_labels({}));
  EXPECT_NO_THROW(check_alert_labels(
      {{"job", "training"}, {"instance", "node-1:9400"}, {"_x9", "any \"text\" \xc3\xbc\n"}}));
}

TEST(AlertLabels, AreRefusedWhereAlertmanagerWouldRefuseTheAlert) {
  EXPECT_THAT(why_refused("", "x"), testing::HasSubstr("letters, digits"));
  EXPECT_THAT(why_refused("9a", "x"), testing::HasSubstr("letters, digits"));
  EXPECT_THAT(why_refused("a-b", "x"), testing::HasSubstr("letters, digits"));
  EXPECT_THAT(why_refused("\xc3\xbc", "x"), testing::HasSubstr("letters, digits"));
  EXPECT_THAT(why_refused("__name__", "x"), testing::HasSubstr("two underscores"));
  EXPECT_THAT(why_refused("job", ""), testing::HasSubstr("empty"));
  EXPECT_THAT(why_refused("job", "\xff"), testing::HasSubstr("UTF-8"));
}

TEST(AlertLabels, DoNotTakeThePlaceOfTheAlertsOwn) {
  for (const char* name : {"alertname", "severity", "component", "run"})
    EXPECT_THAT(why_refused(name, "x"), testing::HasSubstr("has its own")) << name;
}

TEST(AlertLabels, AreReadFromAList) {
  EXPECT_TRUE(parse_alert_labels("").empty());
  EXPECT_EQ(parse_alert_labels("job=training,instance=node-1:9400"),
            (AlertLabels{{"job", "training"}, {"instance", "node-1:9400"}}));
  EXPECT_EQ(parse_alert_labels("query=a=b"), (AlertLabels{{"query", "a=b"}}));
}

TEST(AlertLabels, OfAListThatIsNoneAreRefused) {
  for (const char* text :
       {"job", "job=a,", ",job=a", "job=a,job=b", "=a", "job=", "run=gpt", " job=a"})
    EXPECT_THROW((void)parse_alert_labels(text), std::invalid_argument) << text;
}

}  // namespace
}  // namespace gradvane::exporters
