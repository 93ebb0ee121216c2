#pragma once
// A torch.optim.Optimizer and the names its parameters have in Python as a source of parameters.
#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectors/model/model_source.hpp"
#include "python/text.hpp"

namespace gradvane::python {

namespace py = pybind11;

/// Holds the optimizer weakly: once it is gone, its parameters have no owner. Every call
/// takes the GIL by itself, and lets no Python exception out but from the constructor.
class [[gnu::visibility("hidden")]] PythonSource final : public collectors::ModelSource {
 public:
  /// `names`: a callable that returns a list of (name, tensor). `optimizer`: None for a loop
  /// without one.
  PythonSource(py::object names, const py::object& optimizer);
  ~PythonSource() override;

  const void* names_key() const noexcept override { return names_.ptr(); }
  const void* optimizer_key() const noexcept override { return optimizer_; }
  std::string optimizer_type() const override { return type_; }
  std::vector<Named> named_parameters() const override;
  bool names_are_cheap() const noexcept override { return false; }  // a microsecond each
  std::vector<std::vector<collectors::Tensor>> optimizer_parameters() const override;
  bool changed(std::span<const void* const> identity) const noexcept override;
  std::vector<collectors::Shard> shards(std::span<const collectors::Tensor> params) const override;
  collectors::Tensor local_part(const collectors::Tensor& tensor) const override;
  void read_device_state() noexcept override;
  std::int64_t steps_done() const override;
  int learning_rates(double* out, int room) const noexcept override;

 private:
  [[nodiscard]] py::object optimizer() const;
  template <typename Visit>
  void for_each_step(Visit visit) const noexcept;

  py::object names_;
  PyObject* optimizer_ = nullptr;  ///< a name only: it may be gone
  py::object reference_;           ///< weak
  std::string type_;
  double steps_on_device_ = 0;  ///< when it was attached
};

}  // namespace gradvane::python
