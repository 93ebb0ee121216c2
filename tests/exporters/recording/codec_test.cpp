#include "exporters/recording/codec.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "exporters/recording/fields.hpp"
#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/recording/every_field.hpp"

namespace gradvane::exporters::recording {
namespace {

using fakes::filled;
using fakes::text_of;

constexpr std::size_t kPlenty = std::size_t{64} << 20;

template <typename Record>
std::string payload_of_record(const Record& record) {
  std::string payload;
  encode(payload, record);
  return payload;
}

template <typename Record>
Record through(const Record& record) {
  Record back;
  ReadContext context{.bytes_left = kPlenty};
  EXPECT_TRUE(decode(payload_of_record(record), back, context));
  EXPECT_EQ(context.unknown_words, 0);
  return back;
}

record::StepRecord through(const record::StepRecord& record) {
  std::string payload;
  encode_step(payload, record, 7);
  StepFrame back;
  ReadContext context{.bytes_left = kPlenty};
  EXPECT_TRUE(decode(payload, back, context));
  EXPECT_EQ(back.model, 7U);
  return back.record;
}

TEST(Codec, KeepsEveryFieldOfAStep) {
  const auto record = filled<record::StepRecord>();
  EXPECT_EQ(text_of(through(record)), text_of(record));
  EXPECT_NE(text_of(record), text_of(record::StepRecord{}));
}

TEST(Codec, KeepsEveryFieldOfARunAModelAnIncidentAndTheSyncs) {
  const auto run = filled<record::RunInfo>();
  EXPECT_EQ(text_of(through(run)), text_of(run));
  const auto model = filled<record::ModelInfo>();
  EXPECT_EQ(text_of(through(model)), text_of(model));
  const auto incident = filled<record::Incident>();
  EXPECT_EQ(text_of(through(incident)), text_of(incident));
  const auto syncs = filled<record::SyncSummary>();
  EXPECT_EQ(text_of(through(syncs)), text_of(syncs));
}

TEST(Codec, KeepsEveryColumnOfTheDetail) {
  auto detail = filled<record::StepDetail>();
  for (auto& group : detail.groups) group.params = std::abs(group.params);
  EXPECT_EQ(text_of(through(detail)), text_of(detail));
}

TEST(Codec, KeepsWhatIsAbsentAbsent) {
  EXPECT_EQ(text_of(through(record::StepRecord{})), text_of(record::StepRecord{}));
  EXPECT_EQ(text_of(through(record::Incident{})), text_of(record::Incident{}));
  EXPECT_EQ(text_of(through(record::ModelInfo{})), text_of(record::ModelInfo{}));
  EXPECT_EQ(text_of(through(record::StepDetail{})), text_of(record::StepDetail{}));
  record::StepDetail mixed;
  mixed.groups.resize(3);
  mixed.groups[1].grad_norm = 0.0;
  mixed.params.resize(19);
  mixed.params[4].grad.emplace();
  mixed.params[17].grad.emplace().first_nonfinite = 5;
  mixed.params[17].weight.emplace();
  mixed.params[18].update_ratio = -0.0;
  EXPECT_EQ(text_of(through(mixed)), text_of(mixed));
}

TEST(Codec, KeepsTheBitsOfNumbersThatAreNotFinite) {
  record::StepRecord record;
  record.loss = std::bit_cast<double>(0x7FF8'0000'DEAD'BEEFULL);
  record.grad_norm = -std::numeric_limits<double>::infinity();
  record.grad_abs_max = std::numeric_limits<double>::denorm_min();
  record.user_count = 2;
  record.user = {std::nan(""), -0.0};
  EXPECT_EQ(text_of(through(record)), text_of(record));
}

TEST(Codec, KeepsTheLargestNumbers) {
  record::StepRecord record;
  record.step = std::numeric_limits<std::int64_t>::max();
  record.run_step = std::numeric_limits<std::int64_t>::min();
  record.optimizer = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(text_of(through(record)), text_of(record));
  record::ModelInfo model;
  model.id = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(through(model).id, model.id);
}

TEST(Codec, ClampsCountsThatPointNowhere) {
  record::StepRecord record;
  record.lr_count = 1000;
  record.user_count = -1;
  EXPECT_EQ(through(record).lr_count, record::kMaxLearningRates);
  EXPECT_EQ(through(record).user_count, 0);
}

// ---- other versions -------------------------------------------------------------------------------

TEST(Codec, ReadsAFileOfAnOlderVersionThatHadFewerFields) {
  std::string payload;
  WriteArchive archive(payload);
  archive(1, std::string("gpt"));
  archive(6, std::int64_t{4242});
  record::RunInfo run;
  ReadContext context{.bytes_left = kPlenty};
  ASSERT_TRUE(decode(payload, run, context));
  EXPECT_EQ(run.run, "gpt");
  EXPECT_EQ(run.pid, 4242);
  EXPECT_EQ(run.world_size, 1) << "a field that is not there keeps its default";
}

TEST(Codec, StepsOverTheFieldsOfANewerVersion) {
  std::string payload;
  encode(payload, filled<record::RunInfo>());
  WriteArchive archive(payload);
  archive(60, 2.5);
  archive(61, std::int64_t{-3});
  archive(1000, std::vector<std::string>{"what", "this", "is"});
  record::RunInfo run;
  ReadContext context{.bytes_left = kPlenty};
  ASSERT_TRUE(decode(payload, run, context));
  EXPECT_EQ(text_of(run), text_of(filled<record::RunInfo>()));
}

TEST(Codec, LeavesAWordOfANewerVersionAtItsDefaultAndCountsIt) {
  std::string payload;
  WriteArchive archive(payload);
  archive(1, std::int64_t{200});  // RunState
  archive(2, std::string("why"));
  StateFrame state;
  ReadContext context{.bytes_left = kPlenty};
  ASSERT_TRUE(decode(payload, state, context));
  EXPECT_EQ(state.state, record::RunState::running);
  EXPECT_EQ(state.reason, "why");
  EXPECT_EQ(context.unknown_words, 1);
}

TEST(Codec, RefusesAnIncidentOfAClassThatItDoesNotKnow) {
  std::string payload;
  WriteArchive archive(payload);
  archive(1, std::int64_t{1});
  archive(2, std::int64_t{record::kIncidentClasses});
  record::Incident incident;
  ReadContext context{.bytes_left = kPlenty};
  EXPECT_FALSE(decode(payload, incident, context));
}

TEST(Codec, TakesTheBeginningOfAnArrayThatHasGrown) {
  std::string payload;
  WriteArchive archive(payload);
  archive(36, std::vector<double>{1, 2, 3, 4, 5, 6, 7});  // phase_seconds
  record::StepRecord record;
  ReadContext context{.bytes_left = kPlenty};
  ReadArchive reader(payload, context);
  describe(reader, record);
  ASSERT_TRUE(reader.finish());
  EXPECT_EQ(record.phase_seconds[4], 5);
}

// ---- what is no record ----------------------------------------------------------------------------

TEST(Codec, RefusesFieldsOutOfOrder) {
  std::string payload;
  WriteArchive archive(payload);
  archive(2, std::int64_t{1});
  archive(1, std::string("late"));
  record::RunInfo run;
  ReadContext context{.bytes_left = kPlenty};
  EXPECT_FALSE(decode(payload, run, context));
}

TEST(Codec, RefusesANumberThatItsFieldCannotHold) {
  std::string payload;
  WriteArchive archive(payload);
  archive(2, std::int64_t{1} << 40);  // rank
  record::RunInfo run;
  ReadContext context{.bytes_left = kPlenty};
  EXPECT_FALSE(decode(payload, run, context));
}

TEST(Codec, RefusesALengthThatMemoryIsNotThereFor) {
  std::string payload;
  record::ModelInfo model;
  model.params.resize(1000);
  encode(payload, model);
  ReadContext enough{.bytes_left = 1000 * sizeof(record::ParamInfo)};
  ReadContext scarce{.bytes_left = 1000 * sizeof(record::ParamInfo) - 1};
  EXPECT_TRUE(decode(payload, model, enough));
  EXPECT_FALSE(decode(payload, model, scarce));
}

TEST(Codec, RefusesADetailThatClaimsMoreRowsThanItHasBytes) {
  std::string payload;
  record::StepDetail detail;
  detail.groups.resize(2);
  detail.params.resize(2);
  encode(payload, detail);
  std::string claims;
  WriteArchive archive(claims);
  archive(1, std::int64_t{1} << 40);
  claims += payload.substr(2);
  ReadContext context{.bytes_left = kPlenty};
  EXPECT_TRUE(decode(payload, detail, context));
  EXPECT_FALSE(decode(claims, detail, context));
}

TEST(Codec, RefusesEveryPrefixOfARecordThatEndsWithinAField) {
  const std::string whole = payload_of_record(filled<record::Incident>());
  int refused = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    record::Incident incident;
    ReadContext context{.bytes_left = kPlenty};
    // The end of a field is the end of an older version's record.
    if (!decode(std::string_view(whole).substr(0, size), incident, context)) ++refused;
  }
  EXPECT_EQ(refused, static_cast<int>(whole.size()) - 19);
}

}  // namespace
}  // namespace gradvane::exporters::recording
