// The plain page, which needs no script: what it shows, and that no name of a run becomes markup.
#include "exporters/page/page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "exporters/page/page_files.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using fakes::FakeTraining;
using record::NonfiniteKind;
using record::RunState;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class PageTest : public testing::Test {
 protected:
  PageTest() { EXPECT_EQ(board_.start(fakes::fake_run(), model_), ExportResult::ok); }

  void step(int count = 1) {
    for (int i = 0; i < count; ++i) {
      training_.next();
      export_current();
    }
  }
  void export_current() {
    const auto& [record, detail] = training_.current();
    EXPECT_EQ(board_.export_step(record, detail, training_.model()), ExportResult::ok);
  }
  void set_state(RunState state, std::string_view reason = {}) {
    EXPECT_EQ(board_.set_run_state(state, reason), ExportResult::ok);
  }
  std::string page() const { return overview_page(board_).body; }

  std::shared_ptr<const record::ModelInfo> model_ = fakes::fake_model();
  StatusBoard board_;
  FakeTraining training_{model_};
};

TEST_F(PageTest, ShowsTheRun) {
  step(20);
  set_state(RunState::running);
  const std::string html = page();
  EXPECT_THAT(html, HasSubstr("<div class=\"state-line good\">"));
  EXPECT_THAT(html, HasSubstr("<h1>Healthy</h1>"));
  EXPECT_THAT(html, HasSubstr("<title>Healthy \xC2\xB7 fake-gpt</title>"));
  EXPECT_THAT(html, HasSubstr("<p class=\"facts\">step 20 \xC2\xB7 last one "));
  EXPECT_THAT(html, HasSubstr("None since the start of the run."));
  EXPECT_THAT(html, HasSubstr("http-equiv=\"refresh\""));
  for (const char* path : {"metrics", "api/v1/status", "api/v1/params", "api/v1/steps"}) {
    EXPECT_THAT(html, HasSubstr("<a href=\"" + std::string(path) + "\">"));
  }
}

TEST_F(PageTest, HasSixTiles) {
  step(20);
  const std::string html = page();
  std::vector<std::string> tiles;
  for (auto at = html.find("<dt>"); at != std::string::npos; at = html.find("<dt>", at + 1)) {
    tiles.push_back(html.substr(at + 4, html.find("</dd>", at) - at - 4));
  }
  const auto tile = [](std::string_view label, double value) {
    std::array<char, 32> digits{};
    std::snprintf(digits.data(), digits.size(), "%.4g", value);
    return std::string(label) + "</dt><dd>" + digits.data();
  };
  const record::StepRecord& latest = training_.current().record;
  EXPECT_THAT(
      tiles,
      ElementsAre(tile("Loss", *latest.loss), tile("Gradient norm", *latest.grad_norm),
                  tile("Learning rate", latest.lr[0]), tile("Steps/s", 8),
                  "NaN and infinity</dt><dd>none", tile("Update / weight", *latest.update_ratio)));
}

TEST_F(PageTest, NamesTheFirstBadParameter) {
  step(4);
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::pos_inf, 1234);
  export_current();
  EXPECT_EQ(board_.export_incident(fakes::fake_incident(1, 5)), ExportResult::ok);
  step(3);
  set_state(RunState::running);
  const std::string html = page();
  EXPECT_THAT(html, HasSubstr("<h1>NaN since step 5 in the gradient of blocks.0.mlp.weight</h1>"));
  EXPECT_THAT(html, HasSubstr("<div class=\"tile bad\"><dt>NaN and infinity</dt><dd>1 step</dd>"
                              "<dd class=\"note\">1 element, first in step 5</dd>"));
  EXPECT_THAT(html,
              HasSubstr("<li class=\"open\"><strong>Non-finite gradient</strong> "
                        "<span class=\"when\">open, step 5</span> <span class=\"evidence\">"
                        "1 NaN in the gradient of blocks.0.mlp.weight, the first at element 7"));
}

TEST_F(PageTest, WithoutDetectorsTheLatestStepNamesTheFirstBadParameter) {
  step(4);
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::pos_inf, 1234);
  export_current();
  set_state(RunState::running);
  EXPECT_THAT(page(),
              HasSubstr("<h1>+Inf, first in step 5, in the gradient of blocks.0.mlp.weight"));
  EXPECT_THAT(page(), HasSubstr("<dt>Gradient norm</dt><dd>not finite</dd>"));
}

TEST_F(PageTest, ALossThatIsNotFiniteShowsTheLastThatWas) {
  step(4);
  training_.next();
  training_.poison_loss(std::numeric_limits<double>::infinity());
  export_current();
  EXPECT_THAT(page(), ContainsRegex("<div class=\"tile bad\"><dt>Loss</dt><dd>\\+Inf</dd>"
                                    "<dd class=\"note\">last finite one [0-9.]+, step 4</dd>"));
}

TEST_F(PageTest, OpenIncidentsComeFirstAndTenAreShown) {
  step();
  for (int i = 1; i <= 12; ++i) {
    auto incident = fakes::fake_incident(i, 100 + i);
    if (i != 2) incident.closed_at = 1;
    EXPECT_EQ(board_.export_incident(incident), ExportResult::ok);
  }
  const std::string html = page();
  std::vector<std::string> shown;
  for (auto at = html.find("class=\"when\">"); at != std::string::npos;
       at = html.find("class=\"when\">", at + 1)) {
    shown.push_back(html.substr(at + 13, html.find('<', at) - at - 13));
  }
  ASSERT_EQ(shown.size(), 10U);
  EXPECT_EQ(shown[0], "open, step 102");
  EXPECT_EQ(shown[1], "over, step 112");
  EXPECT_EQ(shown[9], "over, step 104");
  EXPECT_THAT(html, HasSubstr("12 incidents in all"));
}

TEST_F(PageTest, BudgetIncidentsHaveWords) {
  auto incident = fakes::fake_incident(1, 5);
  incident.kind = record::IncidentClass::sync_budget;
  EXPECT_EQ(board_.export_incident(incident), ExportResult::ok);
  incident.id = 2;
  incident.kind = record::IncidentClass::own_sync_budget;
  EXPECT_EQ(board_.export_incident(incident), ExportResult::ok);
  EXPECT_THAT(page(), HasSubstr("<li class=\"open mild\"><strong>More host syncs than allowed"));
  EXPECT_THAT(page(), HasSubstr("own than allowed</strong>"));
}

TEST_F(PageTest, SaysInOneSentenceWhatTheScriptWouldShow) {
  const std::string what = has_script() ? "need JavaScript" : "was built without the page";
  EXPECT_THAT(page(), HasSubstr(what));
}

TEST_F(PageTest, ARecordingIsCalledOneAndDoesNotReload) {
  StatusBoard board;
  board.set_recording("a<b>.gvrec");
  EXPECT_EQ(board.start(fakes::fake_run(), model_), ExportResult::ok);
  EXPECT_EQ(board.set_run_state(RunState::running, {}), ExportResult::ok);
  const std::string html = overview_page(board).body;
  EXPECT_THAT(html, HasSubstr("This is a recording: <code>a&lt;b&gt;.gvrec</code>"));
  EXPECT_THAT(html, HasSubstr("<h1>Was training at the end</h1>"));
  EXPECT_THAT(html, Not(HasSubstr("http-equiv=\"refresh\"")));
}

TEST_F(PageTest, DoesNotCallUnmeasuredHealthy) {
  record::StepRecord bare;
  bare.run_step = 1;
  EXPECT_EQ(board_.export_step(bare, {}, *model_), ExportResult::ok);
  EXPECT_THAT(page(), HasSubstr("<dd class=\"note\">not measured</dd>"));
  EXPECT_THAT(page(), Not(HasSubstr("<dd>none</dd>")));
}

TEST_F(PageTest, StaysWhenTheRunIsOver) {
  step();
  set_state(RunState::failed, "out of memory");
  const std::string html = page();
  EXPECT_THAT(html, HasSubstr("<h1>Failed after step 1: out of memory</h1>"));
  EXPECT_THAT(html, Not(HasSubstr("http-equiv=\"refresh\"")));
}

TEST_F(PageTest, NothingThatARunNamesBecomesMarkup) {
  const std::string evil = "<script>alert('x')</script>\"&";
  auto odd = std::make_shared<record::ModelInfo>(*model_);
  odd->id = 2;
  for (auto& param : odd->params) param.name = evil;
  auto run = fakes::fake_run();
  run.run = run.host = run.version = evil;
  EXPECT_EQ(board_.start(run, odd), ExportResult::ok);
  FakeTraining training(odd);
  training.next();
  training.poison_gradient(0, NonfiniteKind::nan);
  EXPECT_EQ(board_.export_step(training.current().record, training.current().detail, *odd),
            ExportResult::ok);
  auto incident = fakes::fake_incident(1, 1);
  incident.evidence = incident.param = evil;
  EXPECT_EQ(board_.export_incident(incident), ExportResult::ok);
  for (const RunState state : {RunState::stalled, RunState::failed}) {
    set_state(state, evil);
    const std::string html = page();
    EXPECT_THAT(html, Not(HasSubstr("<script>")));
    EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;"));
  }
}

TEST_F(PageTest, OfSeveralOptimizersItShowsTheOneThatLeads) {
  auto two = std::make_shared<record::ModelInfo>(*model_);
  two->optimizers = {"Adam", "SGD"};
  ASSERT_EQ(board_.set_model(two), ExportResult::ok);
  training_.next();
  for (const int optimizer : {1, 0}) {  // in the same run step
    training_.current().record.optimizer = optimizer;
    training_.current().record.loss = 1234 + optimizer;
    export_current();
  }
  EXPECT_THAT(page(), HasSubstr("<dt>Loss</dt><dd>1,235</dd>"));
  EXPECT_THAT(page(), Not(HasSubstr("1,234")));
}

}  // namespace
}  // namespace gradvane::exporters
