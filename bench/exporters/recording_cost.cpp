// What the flight recorder takes for a step, beside the plain way: the same numbers as JSON, packed with gzip.
// Prints a JSON object a line. Contenders take turns within a round.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "exporters/gzip.hpp"
#include "exporters/record_json.hpp"
#include "exporters/recording/flight_recorder.hpp"

namespace {

namespace gx = gradvane::exporters;
namespace gr = gradvane::record;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Step {
  gr::StepRecord record;
  gr::StepDetail detail;
};

/// A model of so many layers of four parameters, and steps whose numbers vary as those of a training do: every
/// bit of a norm is noise, maxima are floats, some elements are zero.
class Training {
 public:
  explicit Training(int layers) {
    auto model = std::make_shared<gr::ModelInfo>();
    for (int layer = 0; layer < layers; ++layer) {
      const std::string name = "blocks." + std::to_string(layer);
      model->groups.push_back(name);
      for (const char* kind :
           {".attention.weight", ".attention.bias", ".mlp.weight", ".mlp.bias"}) {
        gr::ParamInfo& param = model->params.emplace_back();
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
    gr::StepRecord& record = step_.record;
    record.step = ++record.run_step;
    record.time += 0.1;
    record.loss = vary(2);
    record.grad_norm = vary(1);
    record.step_seconds = vary(0.1);
    for (std::size_t i = 0; i < level_.size(); ++i) {
      gr::ParamStats& param = step_.detail.params[i];
      param.state = gr::ParamState::finite;
      gr::TensorNumbers& grad = param.grad.emplace();
      grad.numel = model_->params[i].numel;
      grad.norm = vary(level_[i]);
      grad.sum = grad.norm * normal_(random_);
      grad.abs_max = static_cast<float>(vary(grad.norm / 4));
      grad.abs_min_nonzero = static_cast<float>(vary(1e-9));
      grad.zero = random_() % 20 == 0 ? static_cast<std::int64_t>(random_() % 50) : 0;
    }
    for (gr::GroupStats& group : step_.detail.groups) {
      group.params = 4;
      group.grad_norm = vary(1);
      group.grad_abs_max = static_cast<float>(vary(0.1));
      group.grad_zero_ratio = 0.01;
    }
    return step_;
  }

  [[nodiscard]] const std::shared_ptr<const gr::ModelInfo>& model() const { return model_; }

 private:
  double vary(double value) { return value * std::exp(0.1 * normal_(random_)); }

  std::mt19937_64 random_{1};
  std::normal_distribution<double> normal_;
  std::vector<double> level_;
  std::shared_ptr<const gr::ModelInfo> model_;
  Step step_;
};

/// A directory that goes with us.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gradvane-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::exit(1);
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;  // it removes what it made
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

Json numbers_json(const gr::TensorNumbers& numbers) {
  return {{"numel", numbers.numel},         {"zero", numbers.zero},
          {"subnormal", numbers.subnormal}, {"nonfinite", gx::to_json(numbers.nonfinite)},
          {"norm", numbers.norm},           {"sum", numbers.sum},
          {"abs_max", numbers.abs_max},     {"abs_min_nonzero", numbers.abs_min_nonzero}};
}

/// What the step log would write if it had details, packed.
std::size_t plain_way(const Step& step, const gr::ModelInfo& model) {
  Json json = gx::to_json(step.record, model);
  Json groups = Json::array();
  for (const gr::GroupStats& group : step.detail.groups)
    groups.push_back(Json{{"params", group.params},
                          {"grad_norm", group.grad_norm.value_or(0)},
                          {"grad_abs_max", group.grad_abs_max.value_or(0)},
                          {"grad_zero_ratio", group.grad_zero_ratio.value_or(0)}});
  json["groups"] = std::move(groups);
  for (const gr::ParamStats& param : step.detail.params) {
    Json one{{"state", static_cast<int>(param.state)}};
    if (param.grad) one["grad"] = numbers_json(*param.grad);
    if (param.weight) one["weight"] = numbers_json(*param.weight);
    json["params"].push_back(std::move(one));
  }
  return gx::gzip(gx::to_text(json)).value_or("").size();
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void compare(int layers, int rounds) {
  Training training(layers);
  const auto& model = training.model();
  const Scratch scratch;
  gr::RunInfo run;
  run.run = "bench";
  namespace rec = gx::recording;
  rec::FlightRecorder memory({.directory = scratch.path()}, nullptr);
  rec::FlightRecorder disk({.directory = scratch.path(), .disk_bytes = std::size_t{128} << 20},
                           nullptr);
  (void)memory.start(run, model);
  (void)disk.start(run, model);

  std::vector<double> of_memory;
  std::vector<double> of_disk;
  std::vector<double> of_plain;
  std::vector<double> plain_bytes;
  std::vector<double> bytes;
  constexpr int kWarmUp = 3;
  for (int round = -kWarmUp; round < rounds; ++round) {
    const Step& step = training.next();
    std::size_t size = 0;
    const auto put = [&](rec::FlightRecorder& recorder) {
      return seconds_of([&] { (void)recorder.export_step(step.record, step.detail, *model); });
    };
    const double m = put(memory);
    const double d = put(disk);
    const double p = seconds_of([&] { size = plain_way(step, *model); });
    if (round < 0) continue;
    of_memory.push_back(m);
    of_disk.push_back(d);
    of_plain.push_back(p);
    plain_bytes.push_back(static_cast<double>(size));
    bytes.push_back(static_cast<double>(memory.memory().steps().back().frames.size()));
  }
  const Json row{{"parameters", model->params.size()},
                 {"rounds", rounds},
                 {"memory_seconds", median(of_memory)},
                 {"memory_and_disk_seconds", median(of_disk)},
                 {"plain_seconds", median(of_plain)},
                 {"recorder_over_plain_seconds", median(of_memory) / median(of_plain)},
                 {"bytes", median(bytes)},
                 {"plain_bytes", median(plain_bytes)},
                 {"recorder_over_plain_bytes", median(bytes) / median(plain_bytes)}};
  std::printf("%s\n", row.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  compare(25, 20 * rounds);
  compare(2500, 5 * rounds);
  return 0;
}
