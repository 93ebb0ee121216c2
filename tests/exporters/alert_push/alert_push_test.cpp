#include "exporters/alert_push/alert_push.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <stdexcept>
#include <thread>

#include "tests/exporters/alert_push/answering_server.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using fakes::AnsweringServer;
using fakes::Manner;
using record::IncidentClass;
using record::RunState;
using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;

double wall_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

record::Incident incident(std::int64_t id, IncidentClass kind) {
  record::Incident made = fakes::fake_incident(id, 5);
  made.kind = kind;
  made.opened_at = wall_now();
  made.evidence = "incident " + std::to_string(id);
  return made;
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = 30s) {
  for (auto waited = 0ms; waited < limit; waited += 10ms) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

/// Threads of this process that push. One that was joined may still be listed for a moment.
int threads() {
  int found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    found += name == "gradvane-alerts" ? 1 : 0;
  }
  return found;
}

/// Its thread has been joined, or soon ends: a request that was left to itself would last an hour.
bool has_no_thread() {
  return eventually([] { return threads() == 0; });
}

class Push : public testing::Test {
 protected:
  AlertPushOptions options() const {
    return {.url = server_.url(),
            .labels = {{"job", "training"}, {"instance", "node:9400"}},
            .deadline = 1h};
  }
  std::unique_ptr<AlertPush> started(AlertPushOptions with) {
    auto push = std::make_unique<AlertPush>(std::move(with), metrics_);
    EXPECT_EQ(push->start(fakes::fake_run(), fakes::fake_model()), ExportResult::ok);
    return push;
  }
  std::unique_ptr<AlertPush> started() { return started(options()); }
  int pushes(const char* result) const {
    return static_cast<int>(metrics_->value(record::Metric::alert_pushes_total, {result}));
  }

  AnsweringServer server_;
  std::shared_ptr<MetricSet> metrics_ = std::make_shared<MetricSet>(fakes::fake_run());
};

TEST_F(Push, RefusesOptionsThatCannotWork) {
  auto bad = options();
  bad.url = "https://host";
  EXPECT_THROW(AlertPush(bad, nullptr), std::invalid_argument);
  bad = options();
  bad.labels["run"] = "x";
  EXPECT_THROW(AlertPush(bad, nullptr), std::invalid_argument);
  bad = options();
  bad.generator_url = "here";
  EXPECT_THROW(AlertPush(bad, nullptr), std::invalid_argument);
  EXPECT_NO_THROW(AlertPush(options(), nullptr));
}

TEST_F(Push, SendsWhatTheRuleWouldSay) {
  auto with = options();
  with.runbook_base = "http://wiki/";
  with.generator_url = "http://127.0.0.1:9400/";
  const auto push = started(with);
  const auto opened = incident(1, IncidentClass::nonfinite_grad);
  EXPECT_EQ(push->export_incident(opened), ExportResult::ok);
  ASSERT_TRUE(server_.wait_for(1));
  const auto alerts = server_.received()[0].json();
  ASSERT_EQ(alerts.size(), 1U);
  EXPECT_EQ(alerts[0]["labels"], nlohmann::json({{"alertname", "GradvaneTrainingNonFinite"},
                                                 {"severity", "critical"},
                                                 {"run", fakes::fake_run().run},
                                                 {"component", "gradvane"},
                                                 {"job", "training"},
                                                 {"instance", "node:9400"}}));
  EXPECT_EQ(alerts[0]["annotations"]["runbook_url"], "http://wiki/training-non-finite.md");
  EXPECT_EQ(alerts[0]["annotations"]["description"],
            "Run " + fakes::fake_run().run + ", rank 0: incident 1.");
  EXPECT_EQ(alerts[0]["generatorURL"], "http://127.0.0.1:9400/");
  EXPECT_EQ(alerts[0]["startsAt"], rfc3339(opened.opened_at));
  EXPECT_EQ(push->finish(10s), ExportResult::ok);
  EXPECT_EQ(pushes("ok"), 2);  // the second one says that the process goes
  EXPECT_EQ(pushes("failed"), 0);
}

TEST_F(Push, TakesTheAddressOfThePageWhenThereIsOne) {
  const auto push = started();
  push->set_generator_url("not a link");
  push->set_generator_url("http://127.0.0.1:9401/");
  push->set_generator_url("nor this");
  (void)push->export_incident(incident(1, IncidentClass::stalled));
  ASSERT_TRUE(server_.wait_for(1));
  EXPECT_EQ(server_.received()[0].json()[0]["generatorURL"], "http://127.0.0.1:9401/");
}

TEST_F(Push, StartsItsThreadWithTheFirstIncidentAndNotBefore) {
  ASSERT_TRUE(has_no_thread());  // of the tests before
  const auto push = started();
  const auto model = fakes::fake_model();
  fakes::FakeTraining training(model);
  const auto& step = training.next();
  (void)push->export_step(step.record, step.detail, *model);
  (void)push->set_run_state(RunState::running, "");
  EXPECT_EQ(threads(), 0);
  (void)push->export_incident(incident(1, IncidentClass::stalled));
  EXPECT_TRUE(eventually([&] { return threads() == 1; }));
  EXPECT_EQ(push->finish(10s), ExportResult::ok);
  EXPECT_TRUE(eventually([&] { return threads() == 0; }));
}

TEST_F(Push, KeepsSignalsAwayFromItsThread) {
  const auto push = started();
  (void)push->export_incident(incident(1, IncidentClass::stalled));
  ASSERT_TRUE(server_.wait_for(1));
  bool is_found = false;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    const std::string text{std::istreambuf_iterator<char>(status), {}};
    if (!text.starts_with("Name:\tgradvane-alerts")) continue;
    is_found = true;
    const auto blocked = std::stoull(text.substr(text.find("SigBlk:") + 8), nullptr, 16);
    EXPECT_NE(blocked & (1ULL << (SIGTERM - 1)), 0U);
    EXPECT_NE(blocked & (1ULL << (SIGINT - 1)), 0U);
  }
  EXPECT_TRUE(is_found);
}

TEST_F(Push, AlertsForAnEndByItsReason) {
  const auto alert_for = [&](RunState state, const char* reason) {
    const auto push = started();
    const std::size_t before = server_.received().size();
    EXPECT_EQ(push->set_run_state(state, reason), ExportResult::ok);
    EXPECT_EQ(push->finish(10s), ExportResult::ok);
    if (server_.received().size() == before) return std::string("none");
    const auto last = server_.received().back().json();
    return last[0]["labels"]["alertname"].get<std::string>() + ' ' +
           last[0]["labels"]["severity"].get<std::string>();
  };
  EXPECT_EQ(alert_for(RunState::failed, "ValueError: no"), "GradvaneTrainingRunFailed critical");
  EXPECT_EQ(alert_for(RunState::failed, "exit status 3"), "GradvaneTrainingRunFailed critical");
  EXPECT_EQ(alert_for(RunState::failed, "SIGTERM"), "GradvaneTrainingRunTerminated warning");
  EXPECT_EQ(alert_for(RunState::failed, "KeyboardInterrupt"), "none");
  EXPECT_EQ(alert_for(RunState::failed, "interrupted (SIGINT)"), "none");
  EXPECT_EQ(alert_for(RunState::finished, ""), "none");
}

TEST_F(Push, TellsOfAFailedRunAndOfNoOther) {
  const auto push = started();
  for (const auto state : {RunState::running, RunState::stalled, RunState::finished})
    EXPECT_EQ(push->set_run_state(state, "whatever"), ExportResult::ok);
  EXPECT_EQ(push->set_run_state(RunState::failed, "ValueError: no"), ExportResult::ok);
  EXPECT_EQ(push->finish(10s), ExportResult::ok);
  const auto last = server_.received().back().json();
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0]["labels"]["alertname"], "GradvaneTrainingRunFailed");
  EXPECT_THAT(last[0]["annotations"]["description"].get<std::string>(), HasSubstr("ValueError"));
  // For somebody who is not there yet: 15 minutes, not 4.
  EXPECT_GT(last[0]["endsAt"], rfc3339(wall_now() + 800));
  EXPECT_LT(last[0]["endsAt"], rfc3339(wall_now() + 1000));
}

TEST_F(Push, SaysNothingAtTheEndOfARunWithoutIncidents) {
  const auto push = started();
  (void)push->set_run_state(RunState::finished, "");
  EXPECT_EQ(push->finish(10s), ExportResult::ok);
  EXPECT_TRUE(server_.received().empty());
  EXPECT_EQ(pushes("ok") + pushes("failed"), 0);
}

TEST_F(Push, TriesAgainUntilItIsTaken) {
  server_.behave({.status = 503, .body = "not yet"});
  const auto push = started();
  (void)push->export_incident(incident(1, IncidentClass::stalled));
  ASSERT_TRUE(server_.wait_for(2));
  EXPECT_TRUE(eventually([&] { return pushes("failed") >= 2; }));
  EXPECT_THAT(push->last_error(), HasSubstr("answered 503: not yet"));
  server_.behave({});
  EXPECT_TRUE(eventually([&] { return pushes("ok") == 1; }));
  EXPECT_TRUE(eventually([&] { return push->last_error().empty(); }));
}

TEST_F(Push, DoesNotRepeatWhatWasRefused) {
  server_.behave({.status = 400, .body = "bad label"});
  const auto push = started();
  (void)push->export_incident(incident(1, IncidentClass::stalled));
  EXPECT_TRUE(eventually([&] { return pushes("failed") == 1; }));
  EXPECT_THAT(push->last_error(), HasSubstr("answered 400: bad label"));
  std::this_thread::sleep_for(700ms);  // a failure would have been tried again by now
  EXPECT_EQ(server_.received().size(), 1U);
  server_.behave({});
  (void)push->export_incident(incident(2, IncidentClass::loss_spike));  // but what is new is sent
  EXPECT_TRUE(eventually([&] { return pushes("ok") == 1; }));
}

TEST_F(Push, SendsAStormInAFewRequests) {
  const auto push = started();
  for (int i = 1; i <= 5000; ++i) {
    auto one = incident(i, static_cast<IncidentClass>(i % record::kIncidentClasses));
    (void)push->export_incident(one);
    if (i % 3 == 0) one.closed_at = wall_now();
    (void)push->export_incident(one);
  }
  EXPECT_EQ(push->finish(10s), ExportResult::ok);
  const auto requests = server_.received();
  EXPECT_LE(requests.size(), 50U);  // of 10,000 reports: one a second, and the last
  for (const auto& request : requests) EXPECT_LE(request.json().size(), record::kAlertRules.size());
  EXPECT_EQ(pushes("failed"), 0);
}

// ---- the end ------------------------------------------------------------------------------------

class Hostile : public Push, public testing::WithParamInterface<Manner> {};

TEST_P(Hostile, ServersDoNotHoldTheEnd) {
  server_.behave({.manner = GetParam(), .status = 500});
  const auto push = started();
  (void)push->export_incident(incident(1, IncidentClass::nonfinite_grad));
  ASSERT_TRUE(server_.wait_for(1));
  (void)push->set_run_state(RunState::failed, "");
  EXPECT_EQ(push->finish(200ms), ExportResult::ok);
  EXPECT_GE(pushes("failed"), 2);  // both alerts are known to be lost
  EXPECT_EQ(pushes("ok"), 0);
  EXPECT_TRUE(has_no_thread());
}

std::string name_of_manner(const testing::TestParamInfo<Manner>& manner) {
  constexpr std::array kNames{"Whole", "Silent", "Closes", "Drips", "Floods"};
  return kNames[static_cast<std::size_t>(manner.param)];
}

INSTANTIATE_TEST_SUITE_P(Manners, Hostile,
                         testing::Values(Manner::whole, Manner::silent, Manner::closes,
                                         Manner::drips, Manner::floods),
                         name_of_manner);

TEST_F(Push, TriesAFewTimesInTheLastSecondAndKeepsTheReason) {
  server_.behave({.status = 503, .body = "not yet"});
  const auto push = started();
  (void)push->export_incident(incident(1, IncidentClass::stalled));
  ASSERT_TRUE(eventually([&] { return !push->last_error().empty(); }));
  const auto before = server_.received().size();
  EXPECT_EQ(push->finish(1s), ExportResult::ok);
  const auto tries = server_.received().size() - before;
  EXPECT_GE(tries, 1U);
  EXPECT_LE(tries, 6U) << "at 0, 50, 150, 350 and 750 ms, and one more";
  EXPECT_THAT(push->last_error(), HasSubstr("answered 503: not yet"));
}

TEST_F(Push, DoesNotHoldTheEndWhereNobodyListens) {
  auto with = options();
  {
    const AnsweringServer gone;
    with.url = gone.url();
  }
  const auto push = started(with);
  (void)push->export_incident(incident(1, IncidentClass::stalled));
  ASSERT_TRUE(eventually([&] { return !push->last_error().empty(); }));
  EXPECT_EQ(push->finish(200ms), ExportResult::ok);
  EXPECT_GE(pushes("failed"), 1);
  EXPECT_THAT(push->last_error(), HasSubstr("cannot connect"));
}

TEST_F(Push, DoesNotWaitAtTheEndForAHostThatCannotBeFound) {
  const auto asked = std::make_shared<std::latch>(1);
  const auto answered = std::make_shared<std::latch>(1);
  auto with = options();
  with.url = "http://alerts:" + std::to_string(server_.port());
  with.resolve = [asked, answered](const std::string&) {
    asked->count_down();
    answered->wait();  // as a system whose name server is gone
    return std::vector<std::string>{"127.0.0.1"};
  };
  ASSERT_TRUE(has_no_thread());  // of the tests before
  auto push = started(with);
  (void)push->export_incident(incident(1, IncidentClass::stalled));
  asked->wait();
  EXPECT_EQ(push->finish(100ms), ExportResult::ok);  // the answer has not come yet
  push.reset();
  EXPECT_EQ(pushes("failed"), 1);
  EXPECT_EQ(threads(), 1);  // left behind
  answered->count_down();
  EXPECT_TRUE(eventually([&] { return threads() == 0; }));
  EXPECT_TRUE(server_.received().empty());  // it knows that it is too late
  EXPECT_EQ(pushes("failed"), 1);
}

TEST_F(Push, IsOverInNoTimeWithoutFinish) {
  server_.behave({.manner = Manner::silent});
  {
    const auto push = started();
    (void)push->export_incident(incident(1, IncidentClass::stalled));
    ASSERT_TRUE(server_.wait_for(1));
  }
  EXPECT_TRUE(has_no_thread());
}

TEST_F(Push, IsInertInAForkedChild) {
  server_.behave({.manner = Manner::silent});  // its thread is in the middle of something
  auto with = options();
  with.deadline = 1s;
  auto push = started(with);
  (void)push->export_incident(incident(1, IncidentClass::stalled));
  ASSERT_TRUE(server_.wait_for(1));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    bool is_inert =
        push->export_incident(incident(2, IncidentClass::loss_spike)) == ExportResult::closed &&
        push->set_run_state(RunState::failed, "") == ExportResult::closed &&
        push->finish(10s) == ExportResult::closed && push->last_error().empty();
    push->set_generator_url("http://x/");
    push.reset();
    ::_exit(is_inert ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  server_.behave({});
  EXPECT_TRUE(eventually([&] { return pushes("ok") == 1; }));  // the parent goes on
}

}  // namespace
}  // namespace gradvane::exporters
