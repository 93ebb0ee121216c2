// What a viewer is sent as it happens.
#include "exporters/api/event_stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/exporters/fake_run.hpp"

namespace gradvane::exporters {
namespace {

using fakes::FakeTraining;
using nlohmann::json;
using testing::IsEmpty;
using testing::StartsWith;
using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

struct Event {
  std::string name;
  std::string id;
  json data;
};

std::vector<Event> events_in(const std::string& text) {
  std::vector<Event> events;
  Event event;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("event: ")) event.name = line.substr(7);
    if (line.starts_with("id: ")) event.id = line.substr(4);
    if (line.starts_with("data: ")) event.data = json::parse(line.substr(6));
    if (line.empty() && !event.name.empty()) events.push_back(std::exchange(event, {}));
  }
  return events;
}

class EventStreamTest : public testing::Test {
 protected:
  EventStreamTest() { EXPECT_EQ(board_->start(fakes::fake_run(), model_), ExportResult::ok); }

  void step(int count = 1) {
    for (int i = 0; i < count; ++i) {
      const auto& [record, detail] = training_.next();
      EXPECT_EQ(board_->export_step(record, detail, *model_), ExportResult::ok);
    }
  }
  std::vector<Event> next(EventStream& stream, std::chrono::milliseconds later = 250ms) {
    now_ += later;
    return events_in(stream.next(now_));
  }

  std::shared_ptr<const record::ModelInfo> model_ = fakes::fake_model();
  std::shared_ptr<StatusBoard> board_ = std::make_shared<StatusBoard>();
  FakeTraining training_{model_};
  EventStream::Clock::time_point now_{1h};
};

TEST_F(EventStreamTest, BeginsWithTheStatusAndTheStepsSoFar) {
  step(3);
  EventStream stream(board_, 0, 0);
  const std::string text = stream.next(now_);
  EXPECT_THAT(text, StartsWith("retry: 2000\n\n"));
  const auto events = events_in(text);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].name, "status");
  EXPECT_EQ(events[0].data["run"], "fake-gpt");
  EXPECT_EQ(events[1].name, "steps");
  EXPECT_EQ(events[1].data["first"], json({1, 2, 3}));
}

TEST_F(EventStreamTest, SaysEachStepOnceAndNothingInSilence) {
  EventStream stream(board_, 0, 0);
  (void)next(stream);
  step(2);
  ASSERT_EQ(next(stream, 250ms).back().data["first"], json({1, 2}));
  EXPECT_THAT(next(stream, 250ms), IsEmpty());
  step(1);
  EXPECT_EQ(next(stream, 250ms).back().data["first"], json({3}));
}

TEST_F(EventStreamTest, TellsTheStatusOnceASecondAndATurnAtOnce) {
  EventStream stream(board_, 0, 0);
  (void)next(stream);
  step();
  EXPECT_EQ(next(stream, 250ms).size(), 1U);  // the step alone
  ASSERT_EQ(board_->set_run_state(record::RunState::failed, "boom"), ExportResult::ok);
  const auto told = next(stream, 250ms);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].data["state"], "failed");
  step();
  EXPECT_EQ(next(stream, 1000ms).size(), 2U);
}

TEST_F(EventStreamTest, OfSeveralOptimizersTellsTheOneAskedForElseTheOneThatLeads) {
  training_.next();
  for (const int optimizer : {1, 0}) {  // in the same run step
    training_.current().record.optimizer = optimizer;
    const auto& [record, detail] = training_.current();
    ASSERT_EQ(board_->export_step(record, detail, training_.model()), ExportResult::ok);
  }
  const auto told = [this](std::optional<std::int32_t> optimizer) {
    EventStream stream(board_, optimizer, 0);
    const auto events = next(stream);
    return std::pair(events.front().data["latest"]["optimizer"], events.back().data["optimizer"]);
  };
  EXPECT_EQ(told(0), std::pair(json(0), json(0)));
  EXPECT_EQ(told(1), std::pair(json(1), json(1)));
  EXPECT_EQ(told(std::nullopt), std::pair(json(1), json(1)));
}

TEST_F(EventStreamTest, TheStatusComesWithoutTheGroups) {
  step();
  EventStream stream(board_, std::nullopt, 0);
  const auto status = next(stream).front().data;
  EXPECT_TRUE(status.contains("latest"));
  EXPECT_FALSE(status.contains("groups"));
}

TEST_F(EventStreamTest, AViewerThatCannotKeepUpGetsTheNewestSteps) {
  EventStream stream(board_, 0, 0);
  (void)next(stream);
  step(3000);
  const auto first = next(stream).back().data["first"];
  EXPECT_EQ(first.size(), 1000U);
  EXPECT_EQ(first.back(), 3000);
  EXPECT_THAT(next(stream, 250ms), IsEmpty());
}

TEST_F(EventStreamTest, KeepsASilentConnectionAlive) {
  EventStream stream(board_, 0, 0);
  (void)stream.next(now_);
  EXPECT_THAT(stream.next(now_ + 14s), IsEmpty());
  EXPECT_THAT(stream.next(now_ + 15s), StartsWith(": "));
  EXPECT_THAT(stream.next(now_ + 16s), IsEmpty());
}

TEST_F(EventStreamTest, GoesOnWhereAViewerOfThisProcessLeftOff) {
  step(5);
  EventStream stream(board_, 0, 0);
  const std::string id = next(stream).back().id;
  step(2);
  const auto begin = [this](const std::string& last_id, const std::string& query) {
    const auto answer =
        event_stream(board_, {.path = {}, .query = query, .accept = {}, .last_event_id = last_id});
    EXPECT_EQ(answer.content_type, "text/event-stream");
    return events_in(answer.stream().value()).back().data["first"];
  };
  EXPECT_EQ(begin(id, ""), json({6, 7}));
  EXPECT_EQ(begin(id, "since=1"), json({6, 7}));
  EXPECT_EQ(begin("", "since=5"), json({6, 7}));
  EXPECT_EQ(begin("123-5", ""), json({1, 2, 3, 4, 5, 6, 7}));  // of another process
  EXPECT_EQ(begin(id + "x", "").size(), 7U);
}

TEST_F(EventStreamTest, AQueryThatIsNotAllowedGetsNoStream) {
  const auto answer = event_stream(board_, {.path = {}, .query = "colour=red", .accept = {}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_FALSE(answer.stream);
}

}  // namespace
}  // namespace gradvane::exporters
