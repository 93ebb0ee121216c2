// What the page's history takes for a step and in memory, beside the plain way: every number of every step in a
// list that grows. Prints a JSON object a line. Contenders take turns within a round.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/exporters/made_up_training.hpp"
#include "bench/exporters/timing.hpp"
#include "exporters/api/history_api.hpp"
#include "exporters/board/status_board.hpp"
#include "exporters/history/run_history.hpp"

namespace {

namespace gx = gradvane::exporters;
namespace gr = gradvane::record;
using gradvane::bench::median;
using gradvane::bench::seconds_of;
using gradvane::bench::Step;
using gradvane::bench::Training;
using Json = nlohmann::ordered_json;

/// Three numbers a parameter and a step, for ever.
class PlainHistory {
 public:
  explicit PlainHistory(std::size_t params) : rows_(params) {}

  void take(const Step& step) {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const gr::TensorNumbers& grad = *step.detail.params[i].grad;
      rows_[i].push_back(grad.norm);
      rows_[i].push_back(grad.abs_max);
      rows_[i].push_back(static_cast<double>(grad.zero) / static_cast<double>(grad.numel));
    }
  }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& row : rows_) sum += row.capacity() * sizeof(double);
    return sum;
  }

 private:
  std::vector<std::vector<double>> rows_;
};

void compare(int layers, int rounds) {
  Training training(layers);
  const auto& model = training.model();
  gx::RunHistory history;
  gx::StatusBoard board;
  PlainHistory plain(model->params.size());
  gr::RunInfo run;
  run.run = "bench";
  (void)history.start(run, model);
  (void)board.start(run, model);
  std::vector<double> of_history;
  std::vector<double> of_plain;
  for (int round = 0; round < rounds; ++round) {
    const Step& step = training.next();
    of_history.push_back(
        seconds_of([&] { (void)history.export_step(step.record, step.detail, *model); }));
    of_plain.push_back(seconds_of([&] { plain.take(step); }));
    (void)board.export_step(step.record, step.detail, *model);
  }
  std::size_t bytes = 0;
  const auto answer = [&](const std::function<gx::HttpResponse()>& ask) {
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) times.push_back(seconds_of([&] { bytes = ask().body.size(); }));
    return Json{{"seconds", median(times)}, {"bytes", bytes}};
  };
  const auto all = history.grid({.rows = gx::RunHistory::Rows::params, .limit = 1}, 0);
  const Json row{
      {"parameters", model->params.size()},
      {"steps", rounds},
      {"history_seconds", median(of_history)},
      {"longest_history_seconds", *std::ranges::max_element(of_history)},
      {"plain_seconds", median(of_plain)},
      {"history_over_plain_seconds", median(of_history) / median(of_plain)},
      {"cells_bytes", all.columns.points.size() * model->params.size() * sizeof(gx::GridCell)},
      {"plain_bytes", plain.bytes()},
      {"answer_run", answer([&] { return gx::history_json(board, history, ""); })},
      {"answer_steps",
       answer([&] { return gx::history_json(board, history, "resolution=steps"); })},
      {"answer_groups", answer([&] { return gx::heatmap_json(board, history, "limit=1000"); })},
      {"answer_params", answer([&] { return gx::heatmap_json(board, history, "rows=params"); })}};
  std::printf("%s\n", row.dump().c_str());
}

}  // namespace

int main() {
  compare(25, 20'000);
  compare(250, 5'000);
  compare(2500, 1'000);
}
