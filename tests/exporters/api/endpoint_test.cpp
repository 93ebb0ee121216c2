// The endpoint as a whole: a run behind it, a client in front.
#include "exporters/api/endpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "exporters/exporter_set.hpp"
#include "exporters/http/query.hpp"
#include "exporters/page/page_files.hpp"
#include "exporters/prometheus/prometheus_exporter.hpp"
#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/http/raw_client.hpp"

namespace gradvane::exporters {
namespace {

using fakes::FakeTraining;
using fakes::get;
using fakes::RawClient;
using nlohmann::json;
using record::Metric;
using record::NonfiniteKind;
using record::RunState;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using std::chrono_literals::operator""s;

class EndpointTest : public testing::Test {
 protected:
  EndpointTest() {
    exporters_.add(std::make_shared<PrometheusExporter>(metrics_));
    exporters_.add(board_);
    exporters_.add(history_);
    EXPECT_EQ(exporters_.start(fakes::fake_run(), model_), ExportResult::ok);
    const auto started = endpoint_.start({.port = 0});
    EXPECT_THAT(started.error, IsEmpty());
    port_ = started.port;
    url_ = started.url;
  }

  void step(int count = 1) {
    for (int i = 0; i < count; ++i) {
      training_.next();
      export_current();
    }
  }
  void export_current() {
    const auto& [record, detail] = training_.current();
    EXPECT_EQ(exporters_.export_step(record, detail, training_.model()), ExportResult::ok);
  }
  void set_state(RunState state, std::string_view reason = {}) {
    EXPECT_EQ(exporters_.set_run_state(state, reason), ExportResult::ok);
  }
  json api(const std::string& target) {
    const auto answer = get(port_, target);
    EXPECT_EQ(answer.status, 200) << target;
    EXPECT_EQ(answer.fields.at("content-type"), "application/json");
    return json::parse(answer.body);
  }
  std::string page() { return get(port_, "/").body; }

  std::shared_ptr<const record::ModelInfo> model_ = fakes::fake_model();
  std::shared_ptr<MetricSet> metrics_ = std::make_shared<MetricSet>(fakes::fake_run());
  std::shared_ptr<StatusBoard> board_ = std::make_shared<StatusBoard>();
  std::shared_ptr<RunHistory> history_ = std::make_shared<RunHistory>();
  ExporterSet exporters_{metrics_};
  FakeTraining training_{model_};
  Endpoint endpoint_{metrics_, board_, history_};
  std::uint16_t port_ = 0;
  std::string url_;
};

TEST_F(EndpointTest, TheStatusSaysHowOftenItWasScrapedAndLookingIsNoScrape) {
  EXPECT_EQ(api("/api/v1/status")["agent"]["scrapes"], 0);
  (void)get(port_, "/metrics");
  (void)get(port_, "/metrics");
  EXPECT_EQ(api("/api/v1/status")["agent"]["scrapes"], 2);
}

TEST_F(EndpointTest, NamesItsUrl) { EXPECT_EQ(url_, "http://127.0.0.1:" + std::to_string(port_)); }

TEST(EndpointUrl, NamesTheHostWhereItListensEverywhere) {
  const auto url = [](const std::string& address, const std::string& host) {
    Endpoint endpoint(std::make_shared<MetricSet>(fakes::fake_run()),
                      std::make_shared<StatusBoard>(), std::make_shared<RunHistory>());
    const auto started = endpoint.start({.address = address, .port = 0, .host = host});
    const auto port = started.url.rfind(':');
    return port == std::string::npos ? started.url : started.url.substr(0, port) + ":PORT";
  };
  EXPECT_EQ(url("0.0.0.0", "node7"), "http://node7:PORT");
  EXPECT_EQ(url("0.0.0.0", ""), "http://127.0.0.1:PORT");
  EXPECT_EQ(url("localhost", ""), "http://localhost:PORT");
  EXPECT_EQ(url("nonsense", ""), "");
}

TEST(EndpointHosts, OnlyNamesOfItsOwnAreAnsweredAndElsewhereAScrapeUnderAnyName) {
  const auto statuses = [](const std::string& address, const std::string& allowed) {
    Endpoint endpoint(std::make_shared<MetricSet>(fakes::fake_run()),
                      std::make_shared<StatusBoard>(), std::make_shared<RunHistory>());
    const auto started =
        endpoint.start({.address = address, .port = 0, .host = "node7", .allowed_hosts = allowed});
    std::string seen;
    for (const char* host : {"127.0.0.1:9464", "localhost", "node7", "any.example"}) {
      for (const char* path : {"/metrics", "/api/v1/params"}) {
        RawClient client(started.port);
        client.send(std::string("GET ") + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
        seen += (seen.empty() ? "" : " ") + std::to_string(client.receive().status);
      }
    }
    return seen;
  };
  EXPECT_EQ(statuses("127.0.0.1", ""), "200 200 200 200 421 421 421 421");
  EXPECT_EQ(statuses("0.0.0.0", ""), "200 200 200 200 200 200 200 421");
  EXPECT_EQ(statuses("127.0.0.1", "any.example"), "200 200 200 200 421 421 200 200");
}

TEST_F(EndpointTest, AnswersAScrapeInTheFormatThatIsAsked) {
  step(3);
  const auto text = get(port_, "/metrics");
  EXPECT_EQ(text.fields.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(text.fields.at("vary"), "Accept, Accept-Encoding");
  EXPECT_THAT(text.body, HasSubstr("gradvane_steps_total{rank=\"0\",run=\"fake-gpt\"} 3\n"));
  const auto open = get(port_, "/metrics", "Accept: application/openmetrics-text\r\n");
  EXPECT_EQ(open.fields.at("content-type"),
            "application/openmetrics-text; version=1.0.0; charset=utf-8");
  EXPECT_TRUE(open.body.ends_with("# EOF\n"));
}

TEST_F(EndpointTest, CountsScrapesThatWereDelivered) {
  EXPECT_EQ(endpoint_.scrapes().count, 0U);
  EXPECT_FALSE(endpoint_.scrapes().last);
  EXPECT_EQ(get(port_, "/metrics", "", "HEAD").status, 200);
  EXPECT_EQ(get(port_, "/-/healthy").status, 200);
  EXPECT_EQ(endpoint_.scrapes().count, 0U);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(get(port_, "/metrics").status, 200);
  endpoint_.stop(20s);
  EXPECT_EQ(endpoint_.scrapes().count, 1U);
  EXPECT_GE(*endpoint_.scrapes().last, before);
  EXPECT_EQ(metrics_->value(Metric::scrapes_total), 1);
  EXPECT_GT(metrics_->value(Metric::scrape_seconds_total), 0);
  EXPECT_GT(metrics_->value(Metric::agent_seconds_total, {"http"}), 0);
  EXPECT_EQ(metrics_->value(Metric::http_requests_total, {"200"}), 3);
}

TEST_F(EndpointTest, IsHealthyAtOnceAndReadyWithTheFirstStep) {
  EXPECT_EQ(get(port_, "/-/healthy").status, 200);
  EXPECT_EQ(get(port_, "/-/ready").status, 503);
  step();
  EXPECT_EQ(get(port_, "/-/ready").status, 200);
}

TEST_F(EndpointTest, IsReadyWhenTheRunSaysItRuns) {
  set_state(RunState::running);
  EXPECT_EQ(get(port_, "/-/ready").status, 200);
}

// ---- the API --------------------------------------------------------------------------------------

TEST_F(EndpointTest, TheStatusSaysHowTheRunIs) {
  step(12);
  set_state(RunState::running);
  const json status = api("/api/v1/status");
  EXPECT_EQ(status["state"], "running");
  EXPECT_EQ(status["run"], "fake-gpt");
  EXPECT_EQ(status["latest"]["run_step"], 12);
  EXPECT_EQ(status["weight_norm"]["run_step"], 10);
  EXPECT_EQ(status["model"]["params"], 9);
  EXPECT_EQ(status["process"]["settings"][0]["key"], "weight_every");
  EXPECT_FALSE(status["nonfinite"].contains("first"));
}

TEST_F(EndpointTest, ParamsNamesTheBadParameterAndElementLongAfter) {
  step(4);
  training_.next();
  training_.poison_gradient(3, NonfiniteKind::nan, 130);
  export_current();
  step(20);
  const json params = api("/api/v1/params?sort=worst&limit=1");
  EXPECT_EQ(params["total"], 9);
  ASSERT_EQ(params["params"].size(), 1U);
  const json& worst = params["params"][0];
  EXPECT_EQ(worst["name"], "blocks.0.mlp.weight");
  EXPECT_EQ(worst["state"], "finite");
  EXPECT_EQ(worst["nonfinite_steps"], 1);
  EXPECT_EQ(worst["first_nonfinite"],
            json::parse(R"({"run_step": 5, "site": "grad", "kind": "nan", "element": 130,
                            "position": [1, 2]})"));
}

TEST_F(EndpointTest, ParamsCanBeSortedSearchedAndLimited) {
  step(10);
  EXPECT_EQ(api("/api/v1/params")["params"][0]["name"], "embedding.weight");
  EXPECT_EQ(api("/api/v1/params?sort=update_ratio")["params"][0]["index"], 8);
  EXPECT_EQ(api("/api/v1/params?sort=update_ratio&order=asc")["params"][0]["index"], 0);
  const json found = api("/api/v1/params?search=MLP.w&limit=1&sort=name&order=desc");
  EXPECT_EQ(found["matched"], 2);
  EXPECT_EQ(found["params"].size(), 1U);
  EXPECT_EQ(found["params"][0]["name"], "blocks.1.mlp.weight");
  EXPECT_EQ(api("/api/v1/params?search=head.weight")["params"][0]["aliases"][0], "head.weight");
  EXPECT_EQ(api("/api/v1/params?search=a%2Eb")["matched"], 0);
}

TEST_F(EndpointTest, StepsGoOnFromWhereTheLastAnswerEnded) {
  step(25);
  json page = api("/api/v1/steps?limit=10");
  EXPECT_EQ(page["steps"].size(), 10U);
  EXPECT_EQ(page["next"], 10);
  page = api("/api/v1/steps?since=20");
  EXPECT_EQ(page["steps"].size(), 5U);
  EXPECT_EQ(page["steps"][0]["run_step"], 21);
  page = api("/api/v1/steps?since=25");
  EXPECT_EQ(page["steps"].size(), 0U);
  EXPECT_EQ(page["next"], 25);
}

TEST_F(EndpointTest, AQueryThatIsNotAllowedIsToldWhatIs) {
  const std::pair<const char*, const char*> cases[] = {
      {"/api/v1/params?sort=colour", "grad_norm"},
      {"/api/v1/params?order=up", "asc, desc"},
      {"/api/v1/params?limit=0", "from 1 to"},
      {"/api/v1/params?limit=ten", "a whole number"},
      {"/api/v1/params?limit=5x", "a whole number"},
      {"/api/v1/params?limit=99999999999999999999", "a whole number"},
      {"/api/v1/params?colour=red", "sort, order, limit, offset, search"},
      {"/api/v1/params?limit=1&limit=2", "once"},
      {"/api/v1/params?search=%zz", "hexadecimal"},
      {"/api/v1/params?search=%4", "hexadecimal"},
      {"/api/v1/steps?since=-1", "from 0 to"},
      {"/api/v1/steps?limit=1000000", "to 10000"},
      {"/api/v1/status?x=1", "optimizer"},
      {"/api/v1/status?optimizer=-1", "from 0 to"},
      {"/api/v1/syncs?origin=me", "training, gradvane, profiler"},
      {"/api/v1/syncs?limit=0", "from 1 to"},
  };
  for (const auto& [target, hint] : cases) {
    const auto answer = get(port_, target);
    EXPECT_EQ(answer.status, 400) << target;
    const json body = json::parse(answer.body);
    EXPECT_EQ(body.size(), 1U);
    EXPECT_THAT(body["error"].get<std::string>(), HasSubstr(hint)) << target;
  }
}

TEST_F(EndpointTest, TheStatusOfOneOptimizerIsThatOfItsSteps) {
  training_.next();
  for (const int optimizer : {1, 0}) {  // in the same run step
    training_.current().record.optimizer = optimizer;
    training_.current().record.loss = 5 + optimizer;
    export_current();
  }
  EXPECT_EQ(api("/api/v1/status?optimizer=0")["latest"]["loss"], 5);
  EXPECT_EQ(api("/api/v1/status?optimizer=1")["latest"]["loss"], 6);
  EXPECT_EQ(api("/api/v1/status?optimizer=1")["last_finite_loss"]["value"], 6);
  EXPECT_FALSE(api("/api/v1/status?optimizer=2").contains("latest"));
  EXPECT_EQ(api("/api/v1/status")["latest"]["loss"], 5);
}

TEST_F(EndpointTest, NumbersThatAreNotFiniteAreWords) {
  training_.next();
  training_.poison_loss(std::nan(""));
  training_.current().record.grad_norm = INFINITY;
  export_current();
  const json latest = api("/api/v1/status")["latest"];
  EXPECT_EQ(latest["loss"], "nan");
  EXPECT_EQ(latest["grad_norm"], "inf");
}

TEST_F(EndpointTest, NamesThatAreNotUtf8StillMakeJson) {
  auto odd = std::make_shared<record::ModelInfo>(*model_);
  odd->id = 2;
  odd->params[0].name = "\xFF\xFE\"";
  EXPECT_EQ(exporters_.set_model(odd), ExportResult::ok);
  EXPECT_EQ(api("/api/v1/params")["params"][0]["name"], "\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

// ---- the page -------------------------------------------------------------------------------------

TEST_F(EndpointTest, ThePageWorksBeforeTheFirstStep) {
  const auto answer = get(port_, "/");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.fields.at("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(answer.body, HasSubstr("<h1>Starting: no step has been seen yet</h1>"));
}

TEST_F(EndpointTest, ThePageLoadsItsOwnFilesAndNothingElse) {
  step(3);
  std::string html = page();
  if (has_script()) {
    const std::string script = "<script src=\"page.js\" defer></script>";
    ASSERT_THAT(html, HasSubstr(script));
    html.erase(html.find(script), script.size());
  }
  for (const auto* forbidden :
       {"<script", " style=", "javascript:", "http://", "https://", "src="}) {
    EXPECT_THAT(html, Not(HasSubstr(forbidden)));
  }
  EXPECT_EQ(get(port_, "/icon.svg").fields.at("content-type"), "image/svg+xml");
  const auto style = get(port_, "/style.css");
  EXPECT_EQ(style.fields.at("content-type"), "text/css; charset=utf-8");
  EXPECT_THAT(style.body, Not(HasSubstr("url(")));
}

TEST_F(EndpointTest, AFileThatABrowserHasIsNotSentAgain) {
  const auto style = get(port_, "/style.css");
  const std::string etag = style.fields.at("etag");
  const auto again = get(port_, "/style.css", "If-None-Match: " + etag + "\r\n");
  EXPECT_EQ(again.status, 304);
  EXPECT_THAT(again.body, IsEmpty());
  EXPECT_EQ(get(port_, "/style.css", "If-None-Match: \"other\"\r\n").body, style.body);
}

// ---- everything at once ---------------------------------------------------------------------------

TEST_F(EndpointTest, ScrapesRunBesideTheWorker) {
  std::atomic<bool> is_over = false;
  std::atomic<int> answers = 0;
  std::vector<std::jthread> clients;  // gone before what they use
  for (const auto* target : {"/metrics", "/", "/api/v1/params?sort=worst", "/api/v1/status",
                             "/api/v1/steps?since=0&limit=50", "/api/v1/syncs"}) {
    clients.emplace_back([&, target] {
      RawClient client(port_);
      const std::string request =
          std::string("GET ") + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
      while (!is_over) {
        ASSERT_TRUE(client.send(request));
        ASSERT_EQ(client.receive().status, 200) << target;
        ++answers;
      }
    });
  }
  for (int i = 0; i < 300 || answers < 50; ++i) {
    training_.next();
    if (i % 10 == 3) training_.poison_gradient(i % 9, NonfiniteKind::nan);
    export_current();
    EXPECT_EQ(
        exporters_.export_syncs(std::make_shared<const record::SyncSummary>(fakes::fake_syncs(i))),
        ExportResult::ok);
  }
  is_over = true;
}

TEST_F(EndpointTest, AScrapeSeesAStepWholeOrNotAtAll) {
  std::atomic<bool> is_over = false;
  std::jthread worker([&] {
    while (!is_over) {
      training_.next();
      export_current();
    }
  });
  const auto value_of = [](const std::string& text, const std::string& series) {
    const auto at = text.find('\n' + series);
    EXPECT_NE(at, std::string::npos) << series;
    return text.substr(at + series.size() + 1, text.find('\n', at + 1) - at - series.size() - 1);
  };
  for (int i = 0; i < 50; ++i) {
    const std::string text = get(port_, "/metrics").body;
    EXPECT_EQ(
        value_of(text, "gradvane_steps_total{rank=\"0\",run=\"fake-gpt\"} "),
        value_of(text, "gradvane_site_reads_total{rank=\"0\",run=\"fake-gpt\",site=\"loss\"} "));
  }
  is_over = true;
}

}  // namespace
}  // namespace gradvane::exporters
