#pragma once
// Which parameters are watched, under which names, and whether they are still the same ones.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectors/model/model_source.hpp"
#include "collectors/steps/read_plan.hpp"
#include "record/run/run_info.hpp"

namespace gradvane::collectors {

/// The parameters of an agent's modules and optimizers. Training thread only; plans may be read anywhere.
class ModelWatch {
 public:
  ModelWatch(std::string group_rule, int max_groups);

  /// Returns the optimizer's index, which stays its own. Throws std::invalid_argument where the optimizer
  /// is known already.
  int add(std::unique_ptr<ModelSource> source);
  /// The same, and leaves the plans as they are: until the next rebuild() the optimizer has no
  /// parameters. For many that come one after the other, since a rebuild() costs all of them.
  int add_later(std::unique_ptr<ModelSource> source);
  /// Forgets the optimizer's source and lets go of its parameters; the next rebuild() leaves them out.
  void remove(int optimizer) noexcept;

  /// Index of a known optimizer, else -1.
  [[nodiscard]] int find(const void* optimizer_key) const noexcept;
  /// Those that were removed included.
  [[nodiscard]] int optimizers() const noexcept { return static_cast<int>(watched_.size()); }
  [[nodiscard]] bool is_removed(int optimizer) const noexcept;
  /// Those that were not.
  [[nodiscard]] int live() const noexcept { return live_; }

  /// True when the optimizer's parameters are no longer the tensors of its plan. Cost: one pointer
  /// comparison a parameter.
  [[nodiscard]] bool changed(int optimizer) const noexcept;
  /// The same for everything, by asking for all names again where they are cheap: it also finds new frozen
  /// parameters, another dtype, shape or device, and parameters that were frozen and train now.
  [[nodiscard]] bool changed_anywhere() const;

  /// The same, but for the names, of one optimizer's parameters alone.
  [[nodiscard]] bool differs(int optimizer) const noexcept;

  /// Makes new plans for all optimizers. Allocates; the cost grows with the number of parameters. Where it throws, all
  /// is as before.
  void rebuild();

  [[nodiscard]] const std::vector<Tensor>& params(int optimizer) const noexcept;
  /// The parts of params() that lie in this process: params() itself where nothing is sharded.
  [[nodiscard]] const std::vector<Tensor>& local_params(int optimizer) const noexcept;
  /// The part of a gradient that does, as it is now.
  [[nodiscard]] Tensor gradient_now(int optimizer, std::size_t entry) const noexcept;
  /// The same, kept until let_go_of_gradients().
  [[nodiscard]] const Tensor& gradient(int optimizer, std::size_t entry) noexcept;
  void let_go_of_gradients(int optimizer) noexcept;
  [[nodiscard]] std::shared_ptr<const ReadPlan> plan(int optimizer) const noexcept;
  /// Of one of params(), by its place in them; empty if it is in no plan.
  [[nodiscard]] std::string param_name(int optimizer, std::int32_t entry) const;
  [[nodiscard]] std::size_t largest_plan() const noexcept;

  /// As the source says.
  [[nodiscard]] std::int64_t steps_done(int optimizer) const;
  int learning_rates(int optimizer, double* out, int room) const noexcept;

 private:
  struct Watched {
    std::unique_ptr<ModelSource> source;  ///< null once removed
    bool is_first_of_names = false;       ///< nobody before it has the same names
    std::string type;
    std::vector<Tensor> params;  ///< by plan entry
    bool is_sharded = false;
    std::vector<Tensor> local_params;   ///< only where it is
    std::vector<Tensor> gradients;      ///< by plan entry: what gradient() saw
    std::vector<const void*> identity;  ///< TensorImpls of the optimizer's parameters, in its order
    std::shared_ptr<const ReadPlan> plan;
  };

  using Groups = std::vector<std::vector<Tensor>>;
  struct NamedTensor {
    Tensor tensor;
    std::vector<std::string> names;
    const void* key = nullptr;  ///< of its names
    bool is_left_out = false;   ///< it trains, and no optimizer that is watched updates it
  };
  /// Every named parameter once, in module order.
  [[nodiscard]] std::vector<NamedTensor> name_parameters();
  /// What rebuild() finds out of one optimizer.
  struct Found {
    Groups groups;
    std::vector<const void*> identity;
    std::vector<Tensor> params;
    std::vector<std::int32_t> entries;  ///< of `params`: places in ModelInfo::params
    std::vector<Tensor> local_params;
    std::vector<Tensor> gradients;
    std::shared_ptr<ReadPlan> plan;
  };
  /// By optimizer: which of `named` it lists.
  [[nodiscard]] std::vector<std::vector<std::size_t>> divide(std::vector<NamedTensor>& named,
                                                             const std::vector<Found>& found) const;
  void list_parameters(std::vector<NamedTensor>& named, std::vector<Found>& found,
                       record::ModelInfo& model, std::vector<const void*>& left_out) const;
  void note_devices(record::ModelInfo& model);
  void note_first_of_names();

  std::string group_rule_;
  int max_groups_;
  std::uint64_t next_plan_ = 1;
  std::uint64_t next_model_ = 1;
  int live_ = 0;
  std::vector<const void*> left_out_;  ///< TensorImpls of what is listed, and in no plan
  std::vector<Watched> watched_;
  std::map<int, std::optional<record::DeviceInfo>> devices_;  ///< that were asked for, by index
};

}  // namespace gradvane::collectors
