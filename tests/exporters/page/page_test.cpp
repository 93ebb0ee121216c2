// The page that needs no script: what it says, and that nothing it is told becomes markup.
#include "exporters/page/page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using fakes::FakeTraining;
using record::NonfiniteKind;
using record::RunState;
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
  EXPECT_THAT(html, HasSubstr(">Running</span>"));
  EXPECT_THAT(html, HasSubstr("<dt>Step</dt><dd>20</dd>"));
  EXPECT_THAT(html, HasSubstr("<dt>NaN and infinity</dt><dd>none</dd>"));
  EXPECT_THAT(html, HasSubstr("<dt>Learning rate</dt><dd>0.001</dd>"));
  EXPECT_THAT(html, HasSubstr("<dt>Cost of the agent</dt><dd>0.32 %</dd>"));
  EXPECT_THAT(html, HasSubstr("<code>blocks.1.mlp.bias</code>"));
  EXPECT_THAT(html, HasSubstr("http-equiv=\"refresh\""));
}

TEST_F(PageTest, NamesTheFirstBadParameter) {
  step(4);
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::pos_inf, 1234);
  export_current();
  EXPECT_EQ(board_.export_incident(fakes::fake_incident(1, 5)), ExportResult::ok);
  step(3);
  const std::string html = page();
  EXPECT_THAT(html, HasSubstr("1 step, 1 element"));
  EXPECT_THAT(html, HasSubstr("first at step 5: +Inf in the gradient of "
                              "<code>blocks.0.mlp.weight</code>, element 1,234"));
  EXPECT_THAT(html, HasSubstr("Non-finite gradient"));
  EXPECT_THAT(html, HasSubstr("1 step not finite"));
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
  EXPECT_THAT(html, HasSubstr(">Failed</span>"));
  EXPECT_THAT(html, HasSubstr("out of memory"));
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
  incident.evidence = evil;
  EXPECT_EQ(board_.export_incident(incident), ExportResult::ok);
  set_state(RunState::stalled, evil);
  const std::string html = page();
  EXPECT_THAT(html, Not(HasSubstr("<script>")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;"));
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
  EXPECT_THAT(page(), HasSubstr("Loss, optimizer 1 (SGD)"));
  EXPECT_THAT(page(), HasSubstr(">1235<"));
  EXPECT_THAT(page(), Not(HasSubstr(">1234<")));
}

TEST_F(PageTest, ATensorWithoutAFiniteElementHasNoNorm) {
  training_.next();
  auto& grad = *training_.current().detail.params[0].grad;
  grad.norm = 0;
  grad.nonfinite = {grad.numel, 0, 0};
  export_current();
  EXPECT_THAT(page(), HasSubstr("</td><td class=\"n\">NaN</td><td class=\"n\">NaN</td>"));
}

}  // namespace
}  // namespace gradvane::exporters
