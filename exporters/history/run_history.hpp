#pragma once
// The whole run over time: what the page draws. Bounded, however long the run lasts and however large the
// model is.
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "exporters/by_optimizer.hpp"
#include "exporters/exporter.hpp"
#include "exporters/history/grid_history.hpp"
#include "exporters/history/series_history.hpp"

namespace gradvane::exporters {

/// Threading: the Exporter calls come from the worker; the others from any thread. A reader holds up the
/// worker for as long as it takes to copy what was asked for.
class RunHistory final : public Exporter {
 public:
  RunHistory();
  ~RunHistory() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "run_history"; }

  /// Points with a step of that optimizer after `since`; none where it has not stepped.
  [[nodiscard]] SeriesColumns series(std::int32_t optimizer, std::int64_t since) const;

  enum class Rows : std::uint8_t { groups, params };
  /// What rows there are to choose from, and what was chosen of them.
  struct Grid {
    std::shared_ptr<const record::ModelInfo> model;
    std::vector<std::size_t> rows = {};  ///< indices into the model's groups or params
    std::size_t matched = 0;             ///< rows that matched, also those that were not given
    GridColumns columns = {};
  };
  struct GridChoice {
    Rows rows = Rows::groups;
    std::string group = {};   ///< parameters of that group; empty: of all
    std::string search = {};  ///< in names, ASCII case ignored
    std::string name = {};    ///< exactly that row; empty: any
    std::size_t limit = 0;
  };
  [[nodiscard]] Grid grid(const GridChoice& choice, std::int64_t since) const;

 private:
  ExportResult on_start(const record::RunInfo& run,
                        const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_model(const std::shared_ptr<const record::ModelInfo>& model) override;
  ExportResult on_step(const record::StepRecord& record, const record::StepDetail& detail,
                       const record::ModelInfo& model) override;

  void take_model(std::shared_ptr<const record::ModelInfo> model);

  std::vector<GridCell> group_cells_;  ///< of the step at hand; the worker's own
  std::vector<GridCell> param_cells_;

  mutable std::mutex mutex_;  ///< guards what follows
  std::shared_ptr<const record::ModelInfo> model_;
  ByOptimizer<SeriesHistory> series_;
  GridHistory groups_{0};
  GridHistory params_{0};
};

}  // namespace gradvane::exporters
