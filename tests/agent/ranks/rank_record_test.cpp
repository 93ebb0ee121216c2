#include "agent/ranks/rank_record.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

namespace gradvane::agent::ranks {
namespace {

RankRecord full() {
  RankRecord record;
  record.sequence = 0xFEDCBA9876543210;
  record.run_step = 1'000'000'007;
  record.optimizer = 3;
  record.loss_is_bad = true;
  record.has_scaler = true;
  record.norm = 0.1;
  record.is_part = true;
  record.incident = record::IncidentClass::loss_divergence;
  record.bad_since = 999'999'990;
  record.snapshots = {999'999'900, 999'999'800};
  record.own_bad = BadElement{77, 5'000'000'000};
  record.bad_micro_step = 3;
  record.params = 12'345;
  record.fingerprint = 0xFEDC'BA98'7654'3210;
  record.policy = Policy{NonfinitePolicy::rollback, DivergencePolicy::stop, 7, 2.5};
  return record;
}

std::string text(const RankRecord& record) {
  const auto bytes = encode(record);
  return {bytes.begin(), bytes.end()};
}

TEST(RankRecord, ComesBackAsItWasTold) {
  EXPECT_EQ(decode(text(full())), full());
  EXPECT_EQ(decode(text({})), RankRecord{});
  RankRecord endless = full();
  endless.norm = std::numeric_limits<double>::infinity();
  EXPECT_EQ(decode(text(endless)), endless);
}

/// Ranks of a job may run another version: its bytes are a contract.
TEST(RankRecord, HasTheBytesOfItsVersion) {
  RankRecord record;
  record.sequence = 1;
  record.run_step = 2;
  record.gradients_are_bad = true;
  std::string expected = "4RGV";
  expected += std::string("\x02\0\0\0", 4) + std::string("\1\0\0\0\0\0\0\0", 8) +
              std::string("\2\0\0\0\0\0\0\0", 8) + std::string(4, '\0') + std::string(4, '\xFF');
  std::string rest(kRecordBytes - expected.size(), '\0');
  rest.replace(44, 4, 4, '\xFF');  // no parameter was bad before it was averaged
  EXPECT_EQ(text(record), expected + rest);
}

TEST(RankRecord, IsRefusedIfItIsCutOffOrOfAnotherVersionOrNamesWhatThereIsNot) {
  const std::string good = text(full());
  EXPECT_FALSE(decode(good.substr(1)));
  EXPECT_FALSE(decode(good + '\0'));
  EXPECT_FALSE(decode({}));
  std::string other = good;
  other[0] = '1';
  EXPECT_FALSE(decode(other)) << "another version";
  other = good;
  other[5] = 1;
  EXPECT_FALSE(decode(other)) << "a flag that is not known";
  other = good;
  other[28] = static_cast<char>(record::kIncidentClasses);
  EXPECT_FALSE(decode(other)) << "no such class";
  for (const std::size_t place : {80U, 81U}) {
    other = good;
    other[place] = 4;
    EXPECT_FALSE(decode(other)) << "no such policy";
  }
  other = good;
  other[84] = 0;
  EXPECT_FALSE(decode(other)) << "a limit that no option allows";
}

TEST(RankRecord, WhateverBytesComeItIsReadOrRefused) {
  std::mt19937_64 random(11);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = text(full());
    for (int k = 0; k < 4; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto record = decode(bytes);
    if (!record) continue;
    ++read;
    if (record->incident) {
      EXPECT_LT(static_cast<int>(*record->incident), record::kIncidentClasses);
    }
  }
  EXPECT_GT(read, 1000) << "most bytes are numbers, and any number is one";
}

}  // namespace
}  // namespace gradvane::agent::ranks
