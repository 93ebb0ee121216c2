#pragma once
// Steps in which loss, gradients or weights were read, and a detector that judges them.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "detectors/nonfinite.hpp"

namespace gradvane::detectors::test {

using record::Incident;
using record::Site;
using record::StepRecord;

inline constexpr Site kSites[] = {Site::loss, Site::grad, Site::weight};

class NonfiniteSteps : public testing::Test {
 protected:
  static constexpr int kClearAfter = NonfiniteDetector::kClearAfter;

  NonfiniteSteps() {
    model_.params.resize(2);
    model_.params[0].name = "embedding.weight";
    model_.params[1].name = "head.bias";
  }

  /// A step in which `site` was read and held `bad` elements that are NaN.
  StepRecord read(Site site, std::int64_t bad) {
    StepRecord step = unread();
    step.site_measured[index_of(site)] = true;
    step.nonfinite[index_of(site)] = {bad, 0, 0};
    return step;
  }
  StepRecord unread() {
    StepRecord step;
    step.step = step.run_step = ++step_;
    step.time = 1000 + static_cast<double>(step_);
    return step;
  }
  void observe(const StepRecord& step) { detector_.observe(step, model_); }
  void observe_clean(Site site, int times) {
    for (int i = 0; i < times; ++i) observe(read(site, 0));
  }

  record::ModelInfo model_;
  std::int64_t step_ = 0;
  std::vector<Incident> reports_;
  IncidentBook book_;
  NonfiniteDetector detector_{3, true, book_,
                              [this](const Incident& incident) { reports_.push_back(incident); }};
};

}  // namespace gradvane::detectors::test
