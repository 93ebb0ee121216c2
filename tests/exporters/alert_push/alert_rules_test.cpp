#include "record/alert_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "exporters/alert_push/alert_book.hpp"
#include "record/incident_classes.hpp"

namespace gradvane::exporters {
namespace {

namespace fs = std::filesystem;
using record::alert_rule;
using record::AlertRule;
using record::kAlertRules;
using record::kRunFailedRule;
using record::kRunTerminatedRule;

TEST(AlertRules, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const AlertRule& rule : kAlertRules) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_EQ(alert_rule(rule.name), &rule);
  }
  EXPECT_EQ(alert_rule("NoSuchAlert"), nullptr);
  ASSERT_NE(kRunFailedRule, nullptr);
}

TEST(AlertRules, AreEachForAClassOrForTheRun) {
  std::set<const AlertRule*> used{kRunFailedRule, kRunTerminatedRule};
  for (const record::IncidentClassInfo& info : record::kIncidentClassTable)
    used.insert(&alert_rule(info.kind));
  EXPECT_EQ(used.size(), kAlertRules.size());
}

// ---- against the rules for Prometheus ------------------------------------------------------------

struct ShippedRule {
  std::string severity, summary, runbook, keep_firing, expr;
  std::set<std::string> classes;
};

/// The classes whose open incidents an expression looks at.
std::set<std::string> classes_in(const std::string& expr) {
  std::set<std::string> classes;
  const std::regex watched(R"(gradvane_incidents_open\{class=~?"([^"]*)\"\})");
  for (std::sregex_iterator found(expr.begin(), expr.end(), watched), end; found != end; ++found) {
    std::istringstream words((*found)[1]);
    for (std::string word; std::getline(words, word, '|');) classes.insert(word);
  }
  return classes;
}

/// The file that stands at the end of a link.
std::string runbook_in(const std::string& url) {
  std::smatch found;
  return std::regex_search(url, found, std::regex(R"(docs/runbooks/([a-z-]+)\.md)"))
             ? found[1].str()
             : std::string();
}

class AgainstPrometheus : public testing::Test {
 protected:
  void SetUp() override {
    const char* root = std::getenv("GRADVANE_SOURCE_DIR");
    const fs::path file =
        fs::path(root == nullptr ? "." : root) / "dashboards/alerts/gradvane-alerts.yaml";
    if (!fs::exists(file)) GTEST_SKIP() << "no " << file;
    for (const auto& group : YAML::LoadFile(file)["groups"]) {
      for (const auto& rule : group["rules"]) {
        const auto& notes = rule["annotations"];
        const auto expr = rule["expr"].as<std::string>();
        rules_[rule["alert"].as<std::string>()] = {
            .severity = rule["labels"]["severity"].as<std::string>(),
            .summary = notes["summary"].as<std::string>(),
            .runbook = runbook_in(notes["runbook_url"].as<std::string>()),
            .keep_firing = rule["keep_firing_for"].as<std::string>(""),
            .expr = expr,
            .classes = classes_in(expr)};
      }
    }
    ASSERT_GT(rules_.size(), 15U);
  }

  std::map<std::string, ShippedRule> rules_;
};

TEST_F(AgainstPrometheus, TheWordsAreTheSame) {
  for (const AlertRule& rule : kAlertRules) {
    ASSERT_TRUE(rules_.contains(std::string(rule.name))) << rule.name;
    const ShippedRule& shipped = rules_[std::string(rule.name)];
    EXPECT_EQ(name_of(rule.severity), shipped.severity) << rule.name;
    EXPECT_EQ(rule.summary, shipped.summary) << rule.name;
    EXPECT_EQ(runbook_of(rule), shipped.runbook) << rule.name;
  }
}

TEST_F(AgainstPrometheus, EveryClassHasTheRuleThatWatchesIt) {
  std::map<std::string, std::string> watching;
  for (const auto& [name, rule] : rules_)
    for (const std::string& kind : rule.classes) {
      EXPECT_TRUE(watching.emplace(kind, name).second) << kind << " has two rules";
    }
  EXPECT_GT(watching.size(), 10U);
  for (const record::IncidentClassInfo& info : record::kIncidentClassTable) {
    const auto shipped = watching.find(std::string(info.name));
    EXPECT_EQ(alert_rule(info.kind).name, shipped == watching.end() ? "none" : shipped->second)
        << info.name;
  }
}

TEST_F(AgainstPrometheus, TheEndOfARunIsKnownByItsReason) {
  for (const auto reason : record::kNames<record::EndReason>) {
    const AlertRule* rule = alert_rule(*record::named<record::EndReason>(reason));
    for (const AlertRule* other : {kRunFailedRule, kRunTerminatedRule}) {
      const std::regex watched("gradvane_run_end_info\\{reason=~?\"[^\"]*\\b" +
                               std::string(reason) + "\\b");
      EXPECT_EQ(std::regex_search(rules_[std::string(other->name)].expr, watched), other == rule)
          << reason << " " << other->name;
    }
  }
}

TEST_F(AgainstPrometheus, AlertsLastAsLong) {
  const AlertWindows windows;
  const auto minutes = [](std::chrono::seconds time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::minutes>(time).count()) + "m";
  };
  for (const AlertRule& rule : kAlertRules) {
    const ShippedRule& shipped = rules_[std::string(rule.name)];
    EXPECT_EQ(shipped.keep_firing, rule.keeps_firing ? minutes(windows.keep_firing) : "")
        << rule.name;
    EXPECT_EQ(shipped.expr.find("increase(gradvane_incidents_total") != std::string::npos,
              rule.keeps_firing)
        << rule.name;
    if (rule.keeps_firing) {
      EXPECT_THAT(shipped.expr, testing::HasSubstr("}[" + minutes(windows.event) + "]"));
    }
  }
}

}  // namespace
}  // namespace gradvane::exporters
