#include "exporters/page/page_syncs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporters/page/page.hpp"
#include "exporters/text/sync_words.hpp"
#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using record::SyncReason;
using record::SyncSource;
using record::SyncSummary;
using testing::HasSubstr;
using testing::Not;

class PageSyncsTest : public testing::Test {
 protected:
  PageSyncsTest() { EXPECT_EQ(board_.start(fakes::fake_run(), model_), ExportResult::ok); }

  void step(bool is_counted = true) {
    auto [record, detail] = training_.next();
    if (!is_counted) record.syncs.reset();
    EXPECT_EQ(board_.export_step(record, detail, *model_), ExportResult::ok);
  }
  void put(SyncSummary syncs) {
    EXPECT_EQ(board_.export_syncs(std::make_shared<const SyncSummary>(std::move(syncs))),
              ExportResult::ok);
  }
  std::string page() const { return overview_page(board_).body; }

  std::shared_ptr<const record::ModelInfo> model_ = fakes::fake_model();
  StatusBoard board_;
  fakes::FakeTraining training_{model_};
};

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST_F(PageSyncsTest, SaysWhyNothingIsCountedWhateverTheReason) {
  step(false);
  for (int i = 0; i < record::kCount<record::SyncReason>; ++i) {
    const auto reason = static_cast<SyncReason>(i);
    put(fakes::blind_syncs(SyncSource::none, reason));
    std::string words(words_of(reason));
    if (const auto quote = words.find('\''); quote != std::string::npos) {
      words.replace(quote, 1, "&#39;");
    }
    EXPECT_THAT(page(), HasSubstr("<dt>Host syncs</dt><dd>not counted</dd><dd class=\"note\">" +
                                  words + "</dd>"));
    EXPECT_THAT(page(), HasSubstr("<p class=\"empty\">Host syncs are not counted: " + words + "."));
    EXPECT_THAT(page(), Not(HasSubstr("calls per step")));
  }
}

TEST_F(PageSyncsTest, ShowsTheStepAndThePlaces) {
  step();
  put(fakes::fake_syncs(16));
  const std::string html = page();
  EXPECT_THAT(html, HasSubstr("<dt>Host syncs</dt><dd>4</dd><dd class=\"note\">of the training, "
                              "in the latest step; 8 allowed</dd>"));
  EXPECT_THAT(html, HasSubstr("<h2>What the CPU waited for</h2>"));
  EXPECT_THAT(html,
              HasSubstr("<tr><th scope=\"row\"><code>train.py:41</code></th>"
                        "<td><code>train_step</code></td>"
                        "<td class=\"remark\">a value read from the device</td>"
                        "<td class=\"n\">2</td><td class=\"n\">32</td><td class=\"n\">250 ms</td>"
                        "<td class=\"n\">12.5 %</td></tr>"));
  EXPECT_THAT(html, HasSubstr("an event, by Gradvane"));
  EXPECT_THAT(html, HasSubstr("<code>&lt;string&gt;:7</code>"));
  EXPECT_THAT(html, HasSubstr("5 places in all: <a href=\"/api/v1/syncs\">"));
  EXPECT_THAT(html, Not(HasSubstr("were not")));
}

TEST_F(PageSyncsTest, AStepOverItsBudgetLooksBad) {
  step();
  SyncSummary syncs = fakes::fake_syncs(1);
  syncs.budget = 3;
  put(syncs);
  EXPECT_THAT(page(), HasSubstr("<div class=\"tile bad\"><dt>Host syncs</dt>"));
  syncs.budget.reset();
  put(syncs);
  EXPECT_THAT(page(), HasSubstr("in the latest step</dd>"));
  EXPECT_THAT(page(), Not(HasSubstr("tile bad\"><dt>Host")));
}

TEST_F(PageSyncsTest, AStepThatWasNotCountedWholeShowsNoNumber) {
  step(false);
  put(fakes::fake_syncs(1));
  EXPECT_THAT(page(), HasSubstr("<dt>Host syncs</dt><dd>\xE2\x80\x93</dd>"));
}

TEST_F(PageSyncsTest, WhatWasCountedBeforeItStoppedIsShownWithTheReason) {
  step(false);
  SyncSummary syncs = fakes::fake_syncs(16);
  syncs.source = SyncSource::none;
  syncs.reason = SyncReason::yielded;
  syncs.blind_seconds = 2.5;
  syncs.gaps = 1;
  put(syncs);
  const std::string html = page();
  EXPECT_THAT(html, HasSubstr("Host syncs are not counted any more: a profiler"));
  EXPECT_THAT(html, HasSubstr("2 s were counted, 2.5 s were not, with 1 gap."));
  EXPECT_THAT(html, HasSubstr("train.py:41"));
}

TEST_F(PageSyncsTest, CountingWithoutASyncIsNotTheSameAsNotCounting) {
  step();
  put(fakes::fake_syncs(0));
  EXPECT_THAT(page(), HasSubstr("Nothing on the GPU, so far."));
  EXPECT_THAT(page(), Not(HasSubstr("not counted")));
}

TEST_F(PageSyncsTest, ShowsTenPlacesAtMost) {
  step();
  SyncSummary syncs = fakes::fake_syncs(0);
  for (int i = 0; i < 30; ++i) {
    record::SyncSite site;
    site.location = "place" + std::to_string(i) + ".py";
    site.total = {1, static_cast<double>(i)};
    fakes::add_site(syncs, site);
  }
  put(syncs);
  EXPECT_EQ(count(page(), "<code>place"), 10U);
  EXPECT_THAT(page(), HasSubstr("<code>place29.py"));
  EXPECT_THAT(page(), HasSubstr("30 places in all"));
}

TEST_F(PageSyncsTest, NothingThatAPlaceIsCalledBecomesMarkup) {
  step();
  SyncSummary syncs = fakes::fake_syncs(1);
  const std::string evil = "<b>\"x\"</b>'&";
  for (auto& site : syncs.sites) site.location = site.function = evil;
  put(syncs);
  EXPECT_THAT(page(), Not(HasSubstr("<b>")));
  EXPECT_THAT(page(), HasSubstr("<code>&lt;b&gt;&quot;x&quot;&lt;/b&gt;&#39;&amp;</code>"));
  syncs = fakes::blind_syncs();
  syncs.detail = evil;
  put(syncs);
  EXPECT_THAT(page(), Not(HasSubstr("<b>")));
  EXPECT_THAT(page(), HasSubstr("(&lt;b&gt;"));
}

TEST_F(PageSyncsTest, BudgetIncidentsHaveWords) {
  auto incident = fakes::fake_incident(1, 5);
  incident.kind = record::IncidentClass::sync_budget;
  EXPECT_EQ(board_.export_incident(incident), ExportResult::ok);
  incident.id = 2;
  incident.kind = record::IncidentClass::own_sync_budget;
  EXPECT_EQ(board_.export_incident(incident), ExportResult::ok);
  EXPECT_THAT(page(), HasSubstr("<strong>More host syncs than allowed</strong>"));
  EXPECT_THAT(page(), HasSubstr("own than allowed</strong>"));
}

}  // namespace
}  // namespace gradvane::exporters
