// One address for the ranks of a node: real endpoints on unix sockets behind it, a client in front.
#include "exporters/node/node_endpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "exporters/api/endpoint_file.hpp"
#include "exporters/exporter_set.hpp"
#include "exporters/files/private_directory.hpp"
#include "exporters/files/run_directory.hpp"
#include "exporters/http/unix_socket.hpp"
#include "exporters/node/rank_sockets.hpp"
#include "exporters/prometheus/exposition.hpp"
#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/http/raw_client.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using fakes::get;
using fakes::RawClient;
using record::Metric;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

const std::string kNode = "0123abcd";

record::RunInfo run_of(std::int32_t rank) {
  record::RunInfo run = fakes::fake_run();
  run.rank = rank;
  run.world_size = 4;
  return run;
}

/// A rank's endpoint, as the agent has it.
struct Rank {
  Rank(int directory, const std::filesystem::path& path, std::int32_t rank, const std::string& node)
      : metrics(std::make_shared<MetricSet>(run_of(rank), MetricSetOptions{.max_series = 50'000})),
        board(std::make_shared<StatusBoard>(100)),
        exporters(metrics),
        endpoint(metrics, board) {
    exporters.add(board);
    EXPECT_EQ(exporters.start(run_of(rank), fakes::fake_model()), ExportResult::ok);
    EXPECT_EQ(endpoint.start_on_unix(directory, rank_socket(rank, node), path), "");
  }
  std::shared_ptr<MetricSet> metrics;
  std::shared_ptr<StatusBoard> board;
  ExporterSet exporters;
  Endpoint endpoint;
};

class NodeEndpointTest : public testing::Test {
 protected:
  explicit NodeEndpointTest(NodeEndpoint::Patience patience = {})
      : directory_(open_named_directory(scratch_.path(), ::geteuid(), Missing::stays)),
        node_(kNode, patience) {
    const auto started =
        node_.start({.port = 0, .host = fakes::fake_run().host, .run_directory = scratch_.path()});
    EXPECT_THAT(started.error, IsEmpty());
    port_ = started.port;
    url_ = started.url;
  }

  [[nodiscard]] int directory() const { return directory_.descriptor.get(); }
  void add(std::int32_t rank, const std::string& node = kNode) {
    ranks_[rank] = std::make_unique<Rank>(directory(), scratch_.path(), rank, node);
  }
  void add_ranks() {
    for (const std::int32_t rank : {1, 0, 3}) add(rank);
  }
  /// As the ranks write them: one that is not added is dead.
  void write_endpoint_files(std::initializer_list<std::int32_t> ranks, std::string node = {}) {
    if (node.empty()) node = url_;
    for (const std::int32_t rank : ranks) {
      const auto directory = std::make_shared<RunDirectory>(
          RunDirectoryOptions{.named = scratch_.path(),
                              .run = fakes::fake_run().run,
                              .lock_name = "rank" + std::to_string(rank) + ".lock"});
      EndpointFile file(directory, run_of(rank), node);
      EXPECT_EQ(file.write(node + "/rank/" + std::to_string(rank), record::RunState::running), "");
    }
  }
  /// The last step of that rank has a gradient that is NaN.
  void step(std::int32_t rank, int count) {
    fakes::FakeTraining training(fakes::fake_model());
    for (int i = 1; i <= count; ++i) {
      training.next();
      if (i == count) training.poison_gradient(1, record::NonfiniteKind::nan);
      const auto& [record, detail] = training.current();
      EXPECT_EQ(ranks_.at(rank)->exporters.export_step(record, detail, training.model()),
                ExportResult::ok);
    }
  }
  [[nodiscard]] fakes::Answer ask(const std::string& target, const std::string& fields = {}) const {
    return get(port_, target, fields);
  }
  /// As a rank reads it from its own status.
  [[nodiscard]] int rank_of(const std::string& target) const {
    const auto answer = ask(target);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return nlohmann::json::parse(answer.body).value("rank", -1);
  }

  fakes::Scratch scratch_;
  OpenedDirectory directory_;
  std::map<std::int32_t, std::unique_ptr<Rank>> ranks_;
  NodeEndpoint node_;
  std::uint16_t port_ = 0;
  std::string url_;
};

bool wait_until(const std::function<bool()>& is_so) {
  for (int i = 0; i < 1000 && !is_so(); ++i) std::this_thread::sleep_for(5ms);
  return is_so();
}

bool has_rank(const std::string& exposition, int rank) {
  return exposition.find("rank=\"" + std::to_string(rank) + "\"") != std::string::npos;
}

TEST_F(NodeEndpointTest, MetricsAreThoseOfAllRanks) {
  add_ranks();
  const auto answer = ask("/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.fields.at("content-type"), content_type(ExpositionFormat::text_0_0_4));
  for (const int rank : {0, 1, 3}) EXPECT_TRUE(has_rank(answer.body, rank)) << rank;
  EXPECT_FALSE(has_rank(answer.body, 2));
  for (const auto& [number, rank] : ranks_)  // on the thread of its server, when all is sent
    EXPECT_TRUE(wait_until([&] { return rank->endpoint.scrapes().count == 1; })) << number;
}

TEST_F(NodeEndpointTest, MetricsAreInTheFormatThatIsAskedFor) {
  add_ranks();
  const auto answer = ask("/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n");
  EXPECT_THAT(answer.fields.at("content-type"), HasSubstr("application/openmetrics-text"));
  EXPECT_TRUE(answer.body.ends_with("# EOF\n"));
  EXPECT_EQ(answer.body.find("# EOF"), answer.body.rfind("# EOF"));
}

TEST_F(NodeEndpointTest, APathBelowARankIsThatRanks) {
  add_ranks();
  for (const int rank : {0, 1, 3})
    EXPECT_EQ(rank_of("/rank/" + std::to_string(rank) + "/api/v1/status"), rank);
  EXPECT_FALSE(has_rank(ask("/rank/3/metrics").body, 0));
  EXPECT_EQ(ask("/rank/1/api/v1/steps?limit=nonsense").status, 400) << "the query goes along";
  EXPECT_THAT(ask("/rank/1/").body, HasSubstr("<html"));
}

TEST_F(NodeEndpointTest, AllElseIsTheLowestRanks) {
  add(3);
  add(1);
  EXPECT_EQ(rank_of("/api/v1/status"), 1);
  add(0);
  EXPECT_EQ(rank_of("/api/v1/status"), 0);
  ranks_.erase(0);
  EXPECT_EQ(rank_of("/api/v1/status"), 1) << "its socket is still there, and nobody listens";
  EXPECT_EQ(ask("/nothing").status, 404);
}

TEST_F(NodeEndpointTest, APageOfARankHasASlashSoThatItsLinksLeadToThatRank) {
  add_ranks();
  const auto answer = ask("/rank/1?x=2");
  EXPECT_EQ(answer.status, 308);
  EXPECT_EQ(answer.fields.at("location"), "/rank/1/?x=2");
  EXPECT_THAT(ask("/rank/1/").body, Not(HasSubstr("href=\"/"))) << "all links are relative";
}

TEST_F(NodeEndpointTest, ARankThatIsNotHereIsNamedWithThoseThatAre) {
  add_ranks();
  ranks_.erase(3);
  const auto answer = ask("/rank/3/metrics");
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.body, "no rank 3 here; there is 0, 1\n");
  for (const char* path : {"/rank/", "/rank/x/metrics", "/rank/-1/metrics", "/rank/01/metrics",
                           "/rank/99999999999999999999/metrics"})
    EXPECT_EQ(ask(path).status, 404) << path;
}

TEST_F(NodeEndpointTest, ARankThatEndsLeavesAndTheOthersStay) {
  add_ranks();
  ranks_.erase(0);
  const auto answer = ask("/metrics");
  EXPECT_FALSE(has_rank(answer.body, 0));
  EXPECT_TRUE(has_rank(answer.body, 1));
  EXPECT_TRUE(has_rank(answer.body, 3));
  ranks_.clear();
  EXPECT_EQ(ask("/metrics").status, 503) << "an empty answer would look like a run without metrics";
  EXPECT_EQ(ask("/").status, 503);
}

TEST_F(NodeEndpointTest, TheListOfRanksSaysHowEachOfThemIs) {
  write_endpoint_files({0, 1, 2, 3});
  add_ranks();
  step(1, 3);
  const auto ranks = nlohmann::json::parse(ask("/rank/3/api/v1/ranks").body).at("ranks");
  ASSERT_EQ(ranks.size(), 4U);
  EXPECT_EQ(ranks[3].at("is_this"), true);
  for (const std::size_t rank : {0U, 1U, 3U}) EXPECT_EQ(ranks[rank].at("answers"), true);
  EXPECT_EQ(ranks[1].at("run_step"), 3);
  EXPECT_TRUE(ranks[1].at("loss").is_number());
  EXPECT_EQ(ranks[1].at("nonfinite_steps"), 1);
  EXPECT_EQ(ranks[1].at("open_incidents"), nlohmann::json::array());
  EXPECT_FALSE(ranks[0].contains("loss")) << "it has taken no step";
  EXPECT_EQ(ranks[2].at("answers"), false) << "its file is there, and nobody answers for it";
  EXPECT_EQ(ranks[2].at("state"), "running") << "as its file has it";
}

TEST_F(NodeEndpointTest, TheListOfRanksLeavesThoseAsTheyAreWhoseNodeHasNotBeenAskedYet) {
  write_endpoint_files({0}, "http://other:9464");
  add(0);
  const auto ranks = nlohmann::json::parse(ask("/api/v1/ranks").body).at("ranks");
  ASSERT_EQ(ranks.size(), 1U);
  EXPECT_FALSE(ranks[0].contains("answers"));
}

class TwoNodesTest : public NodeEndpointTest {
 protected:
  TwoNodesTest() : NodeEndpointTest({.others_every = 20ms}) {
    write_endpoint_files({0});
    add(0);
  }
  /// Rank 2 there, which has taken three steps.
  void start_other(const std::string& token = {}) {
    const auto started = other_.start({.port = 0,
                                       .host = fakes::fake_run().host,
                                       .run_directory = scratch_.path(),
                                       .http = {.token = token}});
    ASSERT_THAT(started.error, IsEmpty());
    write_endpoint_files({2}, started.url);
    add(2, other_name_);
    step(2, 3);
  }
  /// That of rank 2, once it is as `is_so` says.
  nlohmann::json entry_of_other(const std::function<bool(const nlohmann::json&)>& is_so) {
    nlohmann::json entry;
    EXPECT_TRUE(wait_until([&] {
      entry = nlohmann::json::parse(ask("/api/v1/ranks").body).at("ranks").at(1);
      return is_so(entry);
    })) << entry;
    return entry;
  }

  const std::string other_name_ = "4567cdef";
  NodeEndpoint other_{other_name_};
};

TEST_F(TwoNodesTest, TheListOfRanksHasTheNumbersOfThoseOfTheOtherNodeUntilItIsGone) {
  start_other();
  const auto entry = entry_of_other([](const auto& it) { return it.value("answers", false); });
  EXPECT_EQ(entry.at("rank"), 2);
  EXPECT_EQ(entry.at("run_step"), 3);
  EXPECT_EQ(entry.at("nonfinite_steps"), 1);
  EXPECT_TRUE(entry.at("loss").is_number());
  const auto own = nlohmann::json::parse(ask("/api/v1/ranks/here").body).at("ranks");
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(own[0].at("rank"), 0);

  other_.stop(1s);
  const auto gone = entry_of_other([](const auto& it) { return !it.value("answers", true); });
  EXPECT_FALSE(gone.contains("run_step"));
}

TEST_F(TwoNodesTest, ANodeThatAsksForAnotherTokenCountsAsOneThatDoesNotAnswer) {
  start_other("another-token-of-ours");
  const auto entry = entry_of_other([](const auto& it) { return it.contains("answers"); });
  EXPECT_EQ(entry.at("answers"), false);
}

TEST_F(NodeEndpointTest, AFileIsNotSentAgainToWhoHasIt) {
  add(0);
  const auto first = ask("/style.css");
  ASSERT_EQ(first.status, 200);
  EXPECT_EQ(first.fields.at("cache-control"), "no-cache");
  const auto again = ask("/style.css", "If-None-Match: " + first.fields.at("etag") + "\r\n");
  EXPECT_EQ(again.status, 304);
}

/// Larger than what a socket holds at once.
TEST_F(NodeEndpointTest, ALargeAnswerComesWhole) {
  add(0);
  for (int i = 0; i < 20'000; ++i)
    ranks_.at(0)->metrics->add(Metric::http_requests_total, i, {std::to_string(i)});
  const auto answer = ask("/metrics", "Accept-Encoding: identity\r\n");
  EXPECT_GT(answer.body.size(), 1'000'000U);
  EXPECT_THAT(answer.body, HasSubstr("code=\"19999\"} 19999\n"));
}

TEST_F(NodeEndpointTest, EventsComeThroughUntilTheRankEnds) {
  add_ranks();
  RawClient client(port_);
  client.send("GET /rank/1/api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::thread end([this] {
    std::this_thread::sleep_for(600ms);
    ranks_.at(1)->endpoint.stop(1s);
  });
  const auto answer = client.receive();
  end.join();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.fields.at("content-type"), "text/event-stream");
  EXPECT_THAT(answer.body, HasSubstr("event: status"));
}

TEST_F(NodeEndpointTest, OtherSitesAndOtherNamesAreRefusedAsEverywhere) {
  add_ranks();
  EXPECT_EQ(ask("/metrics", "Sec-Fetch-Site: cross-site\r\n").status, 403);
  RawClient client(port_);
  client.send("GET /metrics HTTP/1.1\r\nHost: attacker.example\r\n\r\n");
  EXPECT_EQ(client.receive().status, 421);
}

/// Its process is stopped: the kernel takes connections, and nobody answers.
class SilentRankTest : public NodeEndpointTest {
 protected:
  SilentRankTest() : NodeEndpointTest({.usual = 400ms, .of_silent = 50ms}) {
    add(0);
    silent_ = OwnDescriptor(listen_on_unix(directory(), rank_socket(2, kNode), 8));
  }
  OwnDescriptor silent_;
};

TEST_F(SilentRankTest, IsLeftOutAndTheOthersAreThere) {
  for (int i = 0; i < 3; ++i) {
    const auto answer = ask("/metrics");
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(has_rank(answer.body, 0));
    EXPECT_FALSE(has_rank(answer.body, 2));
  }
  EXPECT_EQ(ask("/rank/2/metrics").status, 504);
}

TEST_F(SilentRankTest, IsBackOnceItAnswers) {
  EXPECT_FALSE(has_rank(ask("/metrics").body, 2));
  silent_.close();
  add(2);
  for (int i = 0; i < 100 && !has_rank(ask("/metrics").body, 2); ++i)
    std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(has_rank(ask("/metrics").body, 2));
}

}  // namespace
}  // namespace gradvane::exporters
