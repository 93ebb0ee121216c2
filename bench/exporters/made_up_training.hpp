#pragma once
// A made-up training for benches of exporters.
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "record/run/run_info.hpp"
#include "record/step_record.hpp"

namespace gradvane::bench {

struct Step {
  record::StepRecord record;
  record::StepDetail detail;
};

/// A model of so many layers of four parameters, and steps whose numbers vary as those of a training do: every
/// bit of a norm is noise, maxima are floats, some elements are zero.
class Training {
 public:
  explicit Training(int layers) {
    auto model = std::make_shared<record::ModelInfo>();
    for (int layer = 0; layer < layers; ++layer) {
      const std::string name = "blocks." + std::to_string(layer);
      model->groups.push_back(name);
      for (const char* kind :
           {".attention.weight", ".attention.bias", ".mlp.weight", ".mlp.bias"}) {
        record::ParamInfo& param = model->params.emplace_back();
        param.name = name + kind;
        param.group = layer;
        param.shape = {768, 768};
        param.numel = 768 * 768;
        param.dtype = "float32";
        param.device = "cpu";
        level_.push_back(std::exp(3 * normal_(random_)));
      }
    }
    model_ = std::move(model);
    step_.detail.groups.resize(model_->groups.size());
    step_.detail.params.resize(model_->params.size());
  }

  const Step& next() {
    record::StepRecord& record = step_.record;
    record.step = ++record.run_step;
    record.time += 0.1;
    record.loss = vary(2);
    record.grad_norm = vary(1);
    record.step_seconds = vary(0.1);
    for (std::size_t i = 0; i < level_.size(); ++i) {
      record::ParamStats& param = step_.detail.params[i];
      param.state = record::ParamState::finite;
      record::TensorNumbers& grad = param.grad.emplace();
      grad.numel = model_->params[i].numel;
      grad.norm = vary(level_[i]);
      grad.sum = grad.norm * normal_(random_);
      grad.abs_max = static_cast<float>(vary(grad.norm / 4));
      grad.abs_min_nonzero = static_cast<float>(vary(1e-9));
      grad.zero = random_() % 20 == 0 ? static_cast<std::int64_t>(random_() % 50) : 0;
    }
    for (record::GroupStats& group : step_.detail.groups) {
      group.params = 4;
      group.grad_norm = vary(1);
      group.grad_abs_max = static_cast<float>(vary(0.1));
      group.grad_zero_ratio = 0.01;
    }
    return step_;
  }

  [[nodiscard]] const std::shared_ptr<const record::ModelInfo>& model() const { return model_; }

 private:
  double vary(double value) { return value * std::exp(0.1 * normal_(random_)); }

  std::mt19937_64 random_{1};
  std::normal_distribution<double> normal_;
  std::vector<double> level_;
  std::shared_ptr<const record::ModelInfo> model_;
  Step step_;
};

}  // namespace gradvane::bench
