#include "python/native/python_source.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectors/tensors/tensor_view.hpp"
#include "python/native/torch/torch_ops.hpp"

namespace gradvane::python {

using collectors::Tensor;

namespace {

bool is_tensor(PyObject* object) noexcept { return torch_interface().is_tensor(object); }

/// What a C function of Python returned, which may be null with an exception set: that is dropped.
py::object owned(PyObject* object) {
  if (object == nullptr) PyErr_Clear();
  return py::reinterpret_steal<py::object>(object);
}

/// optimizer.param_groups as a list; empty where it is something else.
py::object param_groups(const py::object& optimizer) {
  if (!optimizer) return {};
  py::object groups = owned(PyObject_GetAttrString(optimizer.ptr(), "param_groups"));
  return groups && PyList_Check(groups.ptr()) ? groups : py::object();
}

/// The parameters of one group, borrowed; null where there are none.
PyObject* params_of(PyObject* group) noexcept {
  if (!PyDict_Check(group)) return nullptr;
  PyObject* params = PyDict_GetItemString(group, "params");
  return params != nullptr && PyList_Check(params) ? params : nullptr;
}

template <typename Visit>
void for_each_param(const py::object& groups, Visit visit) {
  if (!groups) return;
  for (Py_ssize_t g = 0; g < PyList_GET_SIZE(groups.ptr()); ++g) {
    PyObject* params = params_of(PyList_GET_ITEM(groups.ptr(), g));
    if (params == nullptr) continue;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); ++i) {
      PyObject* param = PyList_GET_ITEM(params, i);
      if (is_tensor(param)) visit(static_cast<std::size_t>(g), param);
    }
  }
}

/// A number, or a tensor of one element that is on a CPU.
double number_of(PyObject* object) noexcept {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  if (object == nullptr) return kUnknown;
  if (is_tensor(object)) return collectors::scalar_value(Tensor::of(object)).value_or(kUnknown);
  const double number = PyFloat_AsDouble(object);
  if (PyErr_Occurred() == nullptr) return number;
  PyErr_Clear();
  return kUnknown;
}

}  // namespace

PythonSource::PythonSource(py::object names, const py::object& optimizer)
    : names_(std::move(names)) {
  if (optimizer.is_none()) return;
  optimizer_ = optimizer.ptr();
  reference_ = py::weakref(optimizer);
  type_ = py::str(py::type::handle_of(optimizer).attr("__name__"));
}

PythonSource::~PythonSource() {
  if (Py_IsInitialized() == 0) {  // the interpreter went first: there is nothing left to give back
    (void)names_.release();
    (void)reference_.release();
    return;
  }
  const py::gil_scoped_acquire gil;
  names_ = {};
  reference_ = {};
}

py::object PythonSource::optimizer() const {
  if (!reference_) return {};
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* object = nullptr;
  (void)PyWeakref_GetRef(reference_.ptr(), &object);
  return owned(object);
#else
  PyObject* object = PyWeakref_GetObject(reference_.ptr());
  return object == Py_None ? py::object() : py::reinterpret_borrow<py::object>(object);
#endif
}

std::vector<collectors::ModelSource::Named> PythonSource::named_parameters() const {
  const py::gil_scoped_acquire gil;
  std::vector<Named> named;
  try {
    for (const py::handle item : py::list(names_())) {
      const auto pair = py::cast<py::tuple>(item);
      PyObject* tensor = PyTuple_GET_ITEM(pair.ptr(), 1);
      if (is_tensor(tensor)) named.push_back({py::cast<std::string>(pair[0]), Tensor::of(tensor)});
    }
  } catch (py::error_already_set& error) {  // of a module that is being changed, say
    error.discard_as_unraisable("gradvane: naming the parameters");
  }
  return named;
}

std::vector<std::vector<Tensor>> PythonSource::optimizer_parameters() const {
  const py::gil_scoped_acquire gil;
  std::vector<std::vector<Tensor>> groups;
  for_each_param(param_groups(optimizer()), [&](std::size_t group, PyObject* param) {
    groups.resize(std::max(groups.size(), group + 1));
    groups[group].push_back(Tensor::of(param));
  });
  return groups;
}

bool PythonSource::changed(std::span<const void* const> identity) const noexcept try {
  const py::gil_scoped_acquire gil;
  const py::object live = optimizer();
  if (!live) return false;
  std::size_t i = 0;
  bool differs = false;
  for_each_param(param_groups(live), [&](std::size_t, PyObject* param) {
    differs =
        differs || i >= identity.size() || identity[i] != torch_interface().implementation(param);
    ++i;
  });
  return differs || i != identity.size();
} catch (...) {
  return false;
}

/// What the package's shard_of() says of each parameter.
std::vector<collectors::Shard> PythonSource::shards(std::span<const Tensor> params) const {
  const py::gil_scoped_acquire gil;
  std::vector<collectors::Shard> shards;
  try {
    py::list tensors;
    bool any = false;
    for (const Tensor& param : params) {
      tensors.append(object_of(param));
      any = any || py::hasattr(tensors[tensors.size() - 1], "_local_tensor");
    }
    if (!any) return shards;
    for (const py::handle item :
         py::list(py::module_::import("gradvane._ranks.sharding").attr("shards_of")(tensors))) {
      const auto pair = py::cast<std::pair<double, std::int64_t>>(item);
      shards.push_back({pair.first, pair.second});
    }
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("gradvane: looking at sharded parameters");
    shards.assign(params.size(),
                  collectors::Shard{});  // they are read; what they add up to is not known
  }
  return shards;
}

Tensor PythonSource::local_part(const Tensor& tensor) const {
  if (tensor.object() == nullptr) return tensor;  // undefined, or plain
  const py::gil_scoped_acquire gil;
  const py::object local = owned(PyObject_GetAttrString(tensor.object(), "_local_tensor"));
  return local && is_tensor(local.ptr()) ? Tensor::of(local.ptr()) : tensor;
}

/// Each state[param]["step"] there is, a number or a tensor.
template <typename Visit>
void PythonSource::for_each_step(Visit visit) const noexcept try {
  const py::gil_scoped_acquire gil;
  try {
    const py::object live = optimizer();
    if (!live) return;
    for (const auto& entry : py::cast<py::dict>(py::dict(live.attr("state")))) {
      if (!PyDict_Check(entry.second.ptr())) continue;
      PyObject* step = PyDict_GetItemString(entry.second.ptr(), "step");
      if (step != nullptr) visit(step);
    }
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("gradvane: reading the optimizer's state");
  }
} catch (...) {  // no memory: the steps before are not known
}

/// One tensor on a device is enough: each of them is waited for. A wait would break a graph that is
/// being captured, and then the steps before are not known.
void PythonSource::read_device_state() noexcept {
  bool has_waited = false;
  for_each_step([&](PyObject* step) {
    if (has_waited || !is_tensor(step) || !std::isnan(number_of(step))) return;
    has_waited = true;
    const py::module_ cuda = py::module_::import("torch.cuda");
    if (py::cast<bool>(cuda.attr("is_initialized")()) &&
        py::cast<bool>(cuda.attr("is_current_stream_capturing")()))
      return;
    steps_on_device_ = py::cast<double>(py::handle(step).attr("item")());
  });
}

std::int64_t PythonSource::steps_done() const {
  double done = steps_on_device_;
  for_each_step([&](PyObject* step) {
    const double count = number_of(step);
    if (count > done) done = count;
  });
  return static_cast<std::int64_t>(done);
}

int PythonSource::learning_rates(double* out, int room) const noexcept try {
  const py::gil_scoped_acquire gil;
  const py::object groups = param_groups(optimizer());
  if (!groups) return 0;
  int count = 0;
  for (Py_ssize_t g = 0; g < PyList_GET_SIZE(groups.ptr()) && count < room; ++g) {
    PyObject* group = PyList_GET_ITEM(groups.ptr(), g);
    if (PyDict_Check(group)) out[count++] = number_of(PyDict_GetItemString(group, "lr"));
  }
  return count;
} catch (...) {
  return 0;
}

}  // namespace gradvane::python
