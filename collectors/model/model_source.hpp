#pragma once
// Where a model's parameters come from: what ModelWatch asks of a module and an optimizer, in whichever
// language they live.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectors/steps/read_plan.hpp"
#include "collectors/tensors/tensor.hpp"

namespace gradvane::collectors {

/// One optimizer, or a loop without one, and the names of its parameters. Training thread only.
class ModelSource {
 public:
  struct Named {
    std::string name;
    Tensor tensor;
  };

  ModelSource() = default;
  virtual ~ModelSource() = default;
  ModelSource(const ModelSource&) = delete;  // known by its address
  ModelSource& operator=(const ModelSource&) = delete;

  /// Sources with the same key name the same parameters: they share a module.
  [[nodiscard]] virtual const void* names_key() const noexcept = 0;
  /// The optimizer; null: there is none.
  [[nodiscard]] virtual const void* optimizer_key() const noexcept = 0;
  [[nodiscard]] virtual std::string optimizer_type() const = 0;

  /// All parameters of the module in its own order; a tied one once under each name.
  [[nodiscard]] virtual std::vector<Named> named_parameters() const = 0;
  /// Whether that is cheap enough to be asked whenever weights are read.
  [[nodiscard]] virtual bool names_are_cheap() const noexcept = 0;
  /// What the optimizer updates, by param group.
  [[nodiscard]] virtual std::vector<std::vector<Tensor>> optimizer_parameters() const = 0;

  /// Whether the optimizer's parameters, one after the other, are other tensors than `identity` lists by
  /// TensorImpl. Asked every step.
  [[nodiscard]] virtual bool changed(std::span<const void* const> identity) const noexcept = 0;

  /// One for each of `params`; empty: none of them is sharded.
  [[nodiscard]] virtual std::vector<Shard> shards(std::span<const Tensor> params) const = 0;
  /// The part of a parameter or gradient that lies in this process; a plain tensor is its own.
  [[nodiscard]] virtual Tensor local_part(const Tensor& tensor) const = 0;

  /// Asked once, when it is attached: what a device holds of the optimizer's state may be waited for now,
  /// and never later.
  virtual void read_device_state() noexcept {}
  /// Steps that the optimizer has in its own state; 0 where it keeps none. Waits for no device.
  [[nodiscard]] virtual std::int64_t steps_done() const = 0;
  /// Learning rates by param group into `out`, NaN for one that cannot be read without waiting; returns
  /// how many.
  virtual int learning_rates(double* out, int room) const noexcept = 0;
};

}  // namespace gradvane::collectors
