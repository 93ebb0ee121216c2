#include "record/numbers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace gradvane::record {
namespace {

using testing::DoubleNear;
using testing::Optional;

const TensorNumber& tensor_number(std::string_view key) {
  for (const TensorNumber& number : kTensorNumbers)
    if (number.key == key) return number;
  throw std::out_of_range(std::string(key));
}

const StepNumber& step_number(std::string_view key) {
  for (const StepNumber& number : kStepNumbers)
    if (number.key == key) return number;
  throw std::out_of_range(std::string(key));
}

TEST(Numbers, HaveKeysMetricsAndRecordingIdsOfTheirOwn) {
  std::set<std::string_view> keys;
  std::set<std::pair<Site, std::string_view>> tensor_keys;
  std::set<Metric> metrics;
  std::set<std::uint32_t> ids{1};  // the group's count of parameters
  for (const TensorNumber& number : kTensorNumbers) {
    EXPECT_TRUE(keys.insert(number.key).second) << number.key;
    EXPECT_TRUE(metrics.insert(number.metric).second) << number.key;
    EXPECT_TRUE(ids.insert(number.recording_id).second) << number.key;
    EXPECT_LT(number.recording_id, 16U) << "counts of non-finite elements begin there";
    if (!number.tensor_key.empty()) {
      EXPECT_TRUE(tensor_keys.insert({number.site, number.tensor_key}).second);
    }
  }
  keys.clear();
  for (const StepNumber& number : kStepNumbers) {
    EXPECT_TRUE(keys.insert(number.key).second) << number.key;
    if (number.metric) {
      EXPECT_TRUE(metrics.insert(*number.metric).second) << number.key;
    }
  }
}

/// They go into JSON and TypeScript as they are.
TEST(Numbers, HaveWordsThatNeedNoEscaping) {
  const auto is_plain = [](std::string_view text) {
    return text.find_first_of("\"\\\n") == std::string_view::npos;
  };
  for (const TensorNumber& n : kTensorNumbers)
    for (const auto text : {n.key, n.tensor_key, n.title, n.label, n.words})
      EXPECT_TRUE(is_plain(text)) << text;
  for (const StepNumber& n : kStepNumbers)
    for (const auto text : {n.key, n.title, n.words}) EXPECT_TRUE(is_plain(text)) << text;
}

TEST(Numbers, SayHowTheyAreReadAndWhatTheyAreCalled) {
  for (const TensorNumber& number : kTensorNumbers) {
    const bool has_value = number.value != nullptr;
    const bool has_count = number.count != nullptr;
    EXPECT_EQ(has_count, number.join == Join::share) << number.key;
    EXPECT_EQ(has_value, !has_count && number.join != Join::update) << number.key;
    EXPECT_FALSE(number.title.empty() || number.label.empty() || number.words.empty());
    EXPECT_NE(number.group, nullptr);
  }
  for (const StepNumber& number : kStepNumbers) {
    EXPECT_TRUE(number.of != nullptr || number.stored != nullptr) << number.key;
    EXPECT_FALSE(number.title.empty() || number.words.empty()) << number.key;
    EXPECT_TRUE(number.metric || number.is_logged || number.is_charted) << "shown nowhere";
  }
}

/// A number that a group has without a row would be shown nowhere.
TEST(Numbers, OfAGroupAreAllInTheTable) {
  std::set<const void*> in_table;
  const GroupStats stats;
  for (const TensorNumber& number : kTensorNumbers) in_table.insert(&(stats.*number.group));
  EXPECT_EQ(in_table.size(), kTensorNumbers.size());
  const auto* const begin = reinterpret_cast<const std::byte*>(&stats.grad_norm);
  const auto* const end = reinterpret_cast<const std::byte*>(&stats.nonfinite);
  const auto members = static_cast<std::size_t>(end - begin) / sizeof(stats.grad_norm);
  EXPECT_EQ(members, kTensorNumbers.size());
}

TEST(Numbers, OfATensorAreAllColumnsOfARecording) {
  std::set<const void*> columns;
  const TensorNumbers numbers;
  std::uint32_t last = 7;  // the last of the counts
  for (const TensorColumn& column : kTensorColumns) {
    EXPECT_GT(column.recording_id, last) << "columns are written in the order of their ids";
    last = column.recording_id;
    columns.insert(&(numbers.*column.value));
  }
  for (const TensorNumber& number : kTensorNumbers)
    if (number.value != nullptr) {
      EXPECT_EQ(columns.count(&(numbers.*number.value)), 1U);
    }
}

TEST(Numbers, OfAStepThatAreJoinedOverTensorsHaveAMetricAndAnId) {
  std::set<std::uint32_t> ids;
  for (const TensorNumber& number : kTensorNumbers) {
    EXPECT_EQ(number.step != nullptr, number.step_metric.has_value()) << number.key;
    EXPECT_EQ(number.step != nullptr, number.step_recording_id != 0) << number.key;
    if (number.step != nullptr) {
      EXPECT_TRUE(ids.insert(number.step_recording_id).second);
    }
  }
}

TEST(Numbers, OfATensorAreOverItsFiniteElements) {
  TensorNumbers tensor;
  tensor.numel = 8;
  tensor.zero = 2;
  tensor.subnormal = 1;
  tensor.norm = 5;
  tensor.abs_max = 4;
  tensor.abs_min_nonzero = 1e-40;
  tensor.abs_mean = 1.5;
  EXPECT_THAT(value_of(tensor_number("grad_norm"), tensor), Optional(5.0));
  EXPECT_THAT(value_of(tensor_number("grad_abs_max"), tensor), Optional(4.0));
  EXPECT_THAT(value_of(tensor_number("grad_abs_min_nonzero"), tensor), Optional(1e-40));
  EXPECT_THAT(value_of(tensor_number("grad_abs_mean"), tensor), Optional(1.5));
  EXPECT_THAT(value_of(tensor_number("grad_zero_ratio"), tensor), Optional(0.25));
  EXPECT_THAT(value_of(tensor_number("grad_subnormal_ratio"), tensor), Optional(0.125));

  tensor.nonfinite[0] = 8;
  EXPECT_FALSE(value_of(tensor_number("grad_norm"), tensor));
  EXPECT_FALSE(value_of(tensor_number("grad_abs_max"), tensor));
  EXPECT_THAT(value_of(tensor_number("grad_zero_ratio"), tensor), Optional(0.25));
  EXPECT_FALSE(value_of(tensor_number("grad_zero_ratio"), TensorNumbers{}));
}

TEST(Numbers, OfZerosAloneHaveNoSmallestMagnitude) {
  TensorNumbers tensor;
  tensor.numel = tensor.zero = 3;
  tensor.abs_min_nonzero = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(value_of(tensor_number("grad_abs_min_nonzero"), tensor));
  EXPECT_THAT(value_of(tensor_number("grad_abs_max"), tensor), Optional(0.0));
}

TEST(Numbers, OfAParameterAreThoseOfTheTensorThatTheySay) {
  ParamStats param;
  param.weight.emplace().numel = 1;
  param.weight->norm = 7;
  EXPECT_THAT(value_of(tensor_number("weight_norm"), param), Optional(7.0));
  EXPECT_FALSE(value_of(tensor_number("grad_norm"), param));
  EXPECT_FALSE(value_of(tensor_number("update_ratio"), param));
  param.update_ratio = 1e-3;
  EXPECT_THAT(value_of(tensor_number("update_ratio"), param), Optional(1e-3));
}

TEST(Numbers, JoinAsTheirRuleSays) {
  std::vector<TensorNumbers> tensors(3);
  const std::array<double, 3> values{3, 4, 12};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TensorNumbers& tensor = tensors[i];
    tensor.numel = std::int64_t{1} << (2 * i);  // 1, 4, 16
    tensor.zero = static_cast<std::int64_t>(i);
    tensor.norm = tensor.abs_max = tensor.abs_min_nonzero = tensor.abs_mean = values[i];
  }
  tensors.emplace_back();  // an empty one, and one without a finite element: neither has a norm
  tensors.emplace_back().numel = 7;
  tensors.back().nonfinite[0] = 7;
  const auto joined = [&](std::string_view key) {
    JoinedNumber all;
    for (const TensorNumbers& tensor : tensors) all.add(tensor_number(key), tensor);
    return all.value();
  };
  EXPECT_THAT(joined("grad_norm"), Optional(DoubleNear(13, 1e-12)));
  EXPECT_THAT(joined("grad_abs_max"), Optional(12.0));
  EXPECT_THAT(joined("grad_abs_min_nonzero"), Optional(3.0));
  EXPECT_THAT(joined("grad_abs_mean"),
              Optional(DoubleNear((3.0 + 4 * 4 + 16 * 12) / (1 + 4 + 16), 1e-12)));
  EXPECT_THAT(joined("grad_zero_ratio"), Optional(3.0 / (1 + 4 + 16 + 7)));
  EXPECT_FALSE(JoinedNumber().value());
}

TEST(Numbers, OfHugeMagnitudesHaveAMeanThatIsFinite) {
  TensorNumbers tensor;
  tensor.numel = 1000;
  tensor.abs_mean = std::numeric_limits<double>::max();
  JoinedNumber all;
  for (int i = 0; i < 10; ++i) all.add(tensor_number("grad_abs_mean"), tensor);
  EXPECT_THAT(all.value(), Optional(std::numeric_limits<double>::max()));
}

TEST(Numbers, OfAStepWithoutAFiniteGradientElementHaveNoNorm) {
  StepRecord record;
  record.grad_numel = 4;
  record.grad_zero = 1;
  record.grad_norm = record.grad_abs_max = 0;
  EXPECT_THAT(value_of(step_number("grad_norm"), record), Optional(0.0));
  record.nonfinite[index_of(Site::grad)][0] = 4;
  EXPECT_FALSE(value_of(step_number("grad_norm"), record));
  EXPECT_FALSE(value_of(step_number("grad_abs_max"), record));
  EXPECT_THAT(value_of(step_number("grad_zero_ratio"), record), Optional(0.25));
  record.shard_grad_norm = 0;  // other processes may have had a finite one
  EXPECT_THAT(value_of(step_number("grad_norm"), record), Optional(0.0));
}

}  // namespace
}  // namespace gradvane::record
