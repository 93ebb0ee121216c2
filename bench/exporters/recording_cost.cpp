// What the flight recorder takes for a step, beside the plain way: the same numbers as JSON, packed with gzip.
// Prints a JSON object a line. Contenders take turns within a round.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/exporters/made_up_training.hpp"
#include "bench/exporters/timing.hpp"
#include "exporters/http/gzip.hpp"
#include "exporters/json/record_json.hpp"
#include "exporters/recorder/flight_recorder.hpp"

namespace {

namespace gx = gradvane::exporters;
namespace gr = gradvane::record;
using Json = nlohmann::ordered_json;

using gradvane::bench::median;
using gradvane::bench::seconds_of;
using gradvane::bench::Step;
using gradvane::bench::Training;

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

void compare(int layers, int rounds) {
  Training training(layers);
  const auto& model = training.model();
  const Scratch scratch;
  const auto directory = std::make_shared<gx::RunDirectory>(
      gx::RunDirectoryOptions{.named = scratch.path(), .run = "bench", .lock_name = "rank0.lock"});
  gr::RunInfo run;
  run.run = "bench";
  namespace rec = gx::recording;
  rec::FlightRecorder memory({.directory = directory}, nullptr);
  rec::FlightRecorder disk({.directory = directory, .disk_bytes = std::size_t{128} << 20}, nullptr);
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
