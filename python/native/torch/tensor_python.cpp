// Python's tensors: what collectors/tensors/tensor.hpp declares, by torch's C interface and Python's own.
// All of it is called with the GIL, and within an Unseen.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "collectors/tensors/tensor.hpp"
#include "python/native/gil_released.hpp"
#include "python/native/torch/torch_interface.hpp"
#include "python/native/torch/torch_ops.hpp"
#include "python/text.hpp"

namespace gradvane::collectors {

namespace py = pybind11;
using kernels::DType;
using python::object_of;
using python::tensor_of;
using python::torch_interface;
using python::torch_op;
using python::TorchInterface;

namespace {

/// No exception, and what it would have been is dropped.
PyObject* or_nothing(PyObject* object) noexcept {
  if (object == nullptr) PyErr_Clear();
  return object;
}

/// Of a class whose attributes are torch's own, so that no code of a program runs when they are read.
bool is_plain(PyObject* object) noexcept {
  const TorchInterface& torch = torch_interface();
  return Py_TYPE(object) == torch.plain_type || Py_TYPE(object) == torch.parameter_type;
}

template <typename Value, typename... Arguments>
Value asked(python::Call<Arguments...> call, python::TensorHandle handle) noexcept {
  Value value{};
  (void)call(handle, &value);
  return value;
}

void set_dtype(const TorchInterface& torch, std::int32_t type, TensorFacts& facts) noexcept {
  const auto is = [&](DType dtype, bool is_complex) {
    facts.dtype = dtype;
    facts.is_complex = is_complex;
  };
  if (type == torch.float32) return is(DType::f32, false);
  if (type == torch.bfloat16) return is(DType::bf16, false);
  if (type == torch.float16) return is(DType::f16, false);
  if (type == torch.float64) return is(DType::f64, false);
  if (type == torch.complex64) return is(DType::f32, true);
  if (type == torch.complex128) return is(DType::f64, true);
  if (type == torch.complex32) return is(DType::f16, true);
}

/// As torch's is_non_overlapping_and_dense().
bool is_dense(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  std::vector<std::pair<std::int64_t, std::int64_t>> by_stride;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1) by_stride.emplace_back(strides[d], sizes[d]);
  std::sort(by_stride.begin(), by_stride.end());
  std::int64_t expected = 1;
  for (const auto& [stride, size] : by_stride) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

/// Of one element, whose dtype is known.
std::int64_t item_bytes(const TensorFacts& facts) noexcept {
  return kernels::size_in_bytes(*facts.dtype) * (facts.is_complex ? 2 : 1);
}

/// Bytes of storage that the elements reach.
std::int64_t bytes_needed(const TensorFacts& facts, std::int64_t offset, std::int64_t item) {
  if (facts.numel == 0) return 0;
  std::int64_t last = offset;
  for (std::size_t d = 0; d < facts.sizes.size(); ++d)
    last += (facts.sizes[d] - 1) * facts.strides[d];
  return (last + 1) * item;
}

/// A wrapper around other tensors has no memory, and must not be asked for it.
bool has_storage(const PythonTensor& tensor) {
  PyObject* object = tensor.object();
  return object == nullptr || is_plain(object) ||
         py::cast<bool>(torch_op("has_storage", py::handle(object)));
}

/// A view that negates what it reads has no memory of its own.
bool is_negated(const PythonTensor& tensor, const TensorFacts& facts, std::int64_t storage,
                std::int64_t item) {
  if (tensor.object() == nullptr || (facts.is_row_major && storage == facts.numel * item))
    return false;
  return py::cast<bool>(torch_op("is_neg", py::handle(tensor.object())));
}

void look_at_memory(const PythonTensor& tensor, const TorchInterface& torch, TensorFacts& facts) {
  void* handle = tensor.handle();
  const auto dims = static_cast<std::size_t>(asked<std::int64_t>(torch.dim, handle));
  facts.numel = asked<std::int64_t>(torch.numel, handle);
  facts.sizes = {asked<std::int64_t*>(torch.sizes, handle), dims};
  if (facts.layout == TensorFacts::Layout::sparse) return;
  facts.strides = {asked<std::int64_t*>(torch.strides, handle), dims};
  facts.is_row_major = asked<bool>(torch.is_contiguous, handle);
  facts.is_dense = facts.is_row_major || is_dense(facts.sizes, facts.strides);
  if (!facts.dtype) {  // indices, say: the address is all that is read of them
    facts.data = asked<void*>(torch.data_ptr, handle);
    return;
  }
  const std::int64_t item = item_bytes(facts);
  const auto storage = asked<std::int64_t>(torch.storage_bytes, handle);
  const auto offset = asked<std::int64_t>(torch.storage_offset, handle);
  if (facts.numel > 0 && is_negated(tensor, facts, storage, item)) {
    facts.layout = TensorFacts::Layout::other;
    return;
  }
  facts.data = asked<void*>(torch.data_ptr, handle);
  facts.has_memory = storage >= bytes_needed(facts, offset, item) && facts.data != nullptr;
}

/// Most tensors are as these: of what is asked elsewhere half is known then. False: not this one.
bool look_at_plain(void* handle, const TorchInterface& torch, TensorFacts& facts) {
  const void* implementation = TorchInterface::implementation(handle);
  if (!torch.is_plain(implementation) || !asked<bool>(torch.is_contiguous, handle)) return false;
  set_dtype(torch, asked<std::int32_t>(torch.dtype, handle), facts);
  if (!facts.dtype) return false;
  facts.layout = TensorFacts::Layout::strided;
  facts.place = TensorFacts::Place::cpu;
  if ((torch.keys(implementation) & torch.cuda_key) != 0) {
    facts.place = TensorFacts::Place::cuda;
    facts.device = asked<std::int32_t>(torch.device_index, handle);
  }
  facts.is_row_major = true;
  facts.is_dense = true;
  facts.numel = asked<std::int64_t>(torch.numel, handle);
  const std::int64_t item = item_bytes(facts);
  const std::int64_t bytes = facts.numel * item;
  const auto storage = asked<std::int64_t>(torch.storage_bytes, handle);
  // With room to spare it may begin anywhere in it.
  const std::int64_t offset =
      storage == bytes ? 0 : asked<std::int64_t>(torch.storage_offset, handle);
  facts.data = asked<void*>(torch.data_ptr, handle);
  const std::int64_t needed = facts.numel == 0 ? 0 : bytes + offset * item;
  facts.has_memory = storage >= needed && facts.data != nullptr;
  return true;
}

const std::string& name_of(std::int32_t dtype, const PythonTensor& tensor) {
  static std::map<std::int32_t, std::string> names;
  std::string& name = names[dtype];
  if (name.empty()) name = py::str(torch_op("dtype_name", object_of(tensor)));
  return name;
}

std::string name_of_device(const TorchInterface& torch, const PythonTensor& tensor) {
  const auto type = asked<std::int32_t>(torch.device_type, tensor.handle());
  if (type == torch.cpu) return "cpu";
  const auto index = asked<std::int32_t>(torch.device_index, tensor.handle());
  if (type == torch.cuda) return "cuda:" + std::to_string(index);
  return py::str(object_of(tensor).attr("device"));
}

void look_at(const PythonTensor& tensor, TensorFacts& facts) {
  const TorchInterface& torch = torch_interface();
  void* handle = tensor.handle();
  if (look_at_plain(handle, torch, facts)) return;
  const auto type = asked<std::int32_t>(torch.device_type, handle);
  facts.place = type == torch.cpu    ? TensorFacts::Place::cpu
                : type == torch.cuda ? TensorFacts::Place::cuda
                                     : TensorFacts::Place::other;
  if (type == torch.cuda) facts.device = asked<std::int32_t>(torch.device_index, handle);
  set_dtype(torch, asked<std::int32_t>(torch.dtype, handle), facts);
  const auto layout = asked<std::int32_t>(torch.layout, handle);
  if (layout == torch.sparse)
    facts.layout = TensorFacts::Layout::sparse;
  else if (layout == torch.strided && facts.place != TensorFacts::Place::other &&
           has_storage(tensor))
    facts.layout = TensorFacts::Layout::strided;
  if (facts.layout != TensorFacts::Layout::other) look_at_memory(tensor, torch, facts);
}

}  // namespace

TensorFacts facts_of(const PythonTensor& tensor) noexcept {
  TensorFacts facts;
  if (!tensor.defined()) return facts;
  try {
    look_at(tensor, facts);
  } catch (...) {  // no memory for a list of strides, or a kind of tensor that refuses
    facts = {};
  }
  return facts;
}

const void* identity_of(const PythonTensor& tensor) noexcept {
  return tensor.defined() ? TorchInterface::implementation(tensor.handle()) : nullptr;
}

bool is_on_cpu(const PythonTensor& tensor) noexcept {
  if (!tensor.defined()) return false;
  const TorchInterface& torch = torch_interface();
  const void* implementation = identity_of(tensor);
  if (torch.is_plain(implementation)) return (torch.keys(implementation) & torch.cuda_key) == 0;
  return asked<std::int32_t>(torch.device_type, tensor.handle()) == torch.cpu;
}

int cuda_device_of(const PythonTensor& tensor) noexcept {
  if (!tensor.defined()) return -1;
  const TorchInterface& torch = torch_interface();
  void* handle = tensor.handle();
  if (asked<std::int32_t>(torch.device_type, handle) != torch.cuda) return -1;
  return asked<std::int32_t>(torch.device_index, handle);
}

bool requires_grad(const PythonTensor& tensor) noexcept {
  if (const auto at_once = torch_interface().implementation_requires_grad; at_once != nullptr)
    return at_once(identity_of(tensor));
  PyObject* result = or_nothing(torch_interface().requires_grad(tensor.object(), nullptr));
  const bool trains = result == Py_True;
  Py_XDECREF(result);
  return trains;
}

const void* gradient_identity_of(const PythonTensor& param) noexcept {
  const TorchInterface& torch = torch_interface();
  if (torch.implementation_gradient == nullptr) return identity_of(gradient_of(param));
  const void* gradient =
      TorchInterface::implementation(torch.implementation_gradient(identity_of(param)));
  return gradient == torch.undefined ? nullptr : gradient;
}

PythonTensor gradient_of(const PythonTensor& param) noexcept {
  const TorchInterface& torch = torch_interface();
  if (torch.implementation_gradient != nullptr && is_plain(param.object())) {
    void* handle = torch.implementation_gradient(identity_of(param));
    const void* implementation = TorchInterface::implementation(handle);
    if (implementation == torch.undefined) return {};
    if (torch.is_plain(implementation)) return PythonTensor::copy_of(handle);
  }
  PyObject* gradient = or_nothing(torch_interface().grad(param.object(), nullptr));
  if (gradient == nullptr || !torch_interface().is_tensor(gradient)) {
    Py_XDECREF(gradient);
    return {};
  }
  return PythonTensor::taking(gradient);
}

std::optional<std::uint32_t> version_of(const PythonTensor& tensor) noexcept try {
  if (const auto at_once = torch_interface().handle_version; at_once != nullptr)
    return static_cast<std::uint32_t>(at_once(tensor.handle()));
  const py::object object = object_of(tensor);
  PyObject* version = or_nothing(torch_interface().version(object.ptr(), nullptr));
  if (version == nullptr) return std::nullopt;
  const long count = PyLong_AsLong(version);
  Py_DECREF(version);
  return static_cast<std::uint32_t>(count);
} catch (...) {  // an inference tensor has none
  return std::nullopt;
}

std::string dtype_name(const PythonTensor& tensor) {
  const TorchInterface& torch = torch_interface();
  return name_of(asked<std::int32_t>(torch.dtype, tensor.handle()), tensor);
}

std::string device_name(const PythonTensor& tensor) {
  return name_of_device(torch_interface(), tensor);
}

std::vector<std::int64_t> sizes_of(const PythonTensor& tensor) {
  const TorchInterface& torch = torch_interface();
  if (tensor.object() != nullptr && !is_plain(tensor.object())) {
    std::vector<std::int64_t> sizes;
    for (const py::handle size : torch_op("sizes", object_of(tensor)))
      sizes.push_back(py::cast<std::int64_t>(size));
    return sizes;
  }
  void* handle = tensor.handle();
  const std::int64_t* sizes = asked<std::int64_t*>(torch.sizes, handle);
  return {sizes, sizes + asked<std::int64_t>(torch.dim, handle)};
}

bool is_of(const PythonTensor& tensor, const std::string& dtype, const std::string& device,
           std::span<const std::int64_t> sizes) {
  const TorchInterface& torch = torch_interface();
  PyObject* object = tensor.object();
  void* handle = tensor.handle();
  if (name_of(asked<std::int32_t>(torch.dtype, handle), tensor) != dtype ||
      name_of_device(torch, tensor) != device)
    return false;
  if (object != nullptr && !is_plain(object)) return std::ranges::equal(sizes_of(tensor), sizes);
  const std::int64_t* now = asked<std::int64_t*>(torch.sizes, handle);
  return std::equal(sizes.begin(), sizes.end(), now, now + asked<std::int64_t>(torch.dim, handle));
}

PythonTensor dense_copy(const PythonTensor& tensor) {
  return tensor_of(torch_op("dense_copy", object_of(tensor)));
}

PythonTensor scalar_copy(const PythonTensor& tensor) {
  return tensor_of(torch_op("scalar_copy", object_of(tensor)));
}

PythonTensor scalar_sum(const PythonTensor& a, const PythonTensor& b) {
  return tensor_of(torch_op("scalar_sum", object_of(a), object_of(b)));
}

SparseParts sparse_parts(const PythonTensor& tensor) {
  const py::tuple parts = torch_op("sparse_parts", object_of(tensor));
  return {tensor_of(parts[0]), tensor_of(parts[1]), py::cast<bool>(parts[2])};
}

namespace {

PythonTensor over(const void* data, std::optional<std::int64_t> count, std::int32_t dtype,
                  int device) {
  const TorchInterface& torch = torch_interface();
  const std::int64_t size = count.value_or(1);
  const std::int64_t stride = 1;
  python::TensorHandle handle = nullptr;
  if (torch.from_blob(const_cast<void*>(data), count ? 1 : 0, &size, &stride, 0, dtype, torch.cuda,
                      device, &handle) != 0)
    throw std::bad_alloc();
  return tensor_of(torch_op("from_handle", py::capsule(handle)));
}

}  // namespace

PythonTensor tensor_over(const double* data, std::optional<std::int64_t> count, int device) {
  return over(data, count, torch_interface().float64, device);
}

PythonTensor tensor_over(const float* data, int device) {
  return over(data, std::nullopt, torch_interface().float32, device);
}

void* current_stream(int device) {
  const TorchInterface& torch = torch_interface();
  void* stream = nullptr;
  if (torch.current_cuda_stream != nullptr) (void)torch.current_cuda_stream(device, &stream);
  return stream;
}

OthersRun::OthersRun() noexcept : state_(PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}

OthersRun::~OthersRun() {
  if (state_ != nullptr) python::take_gil_back(static_cast<PyThreadState*>(state_));
}

namespace {

/// One loop on the threads of OpenMP, as a compiler would make it of a parallel region.
struct Loop {
  std::int64_t end;
  std::int64_t parts;
  const std::function<void(std::int64_t, std::int64_t)>* run;

  static void part(void* data) {
    const auto& loop = *static_cast<const Loop*>(data);
    const TorchInterface& torch = torch_interface();
    const std::int64_t threads = std::min<std::int64_t>(torch.omp_threads(), loop.parts);
    const std::int64_t size = (loop.end + threads - 1) / threads;
    const std::int64_t begin = torch.omp_thread() * size;
    if (begin < loop.end) (*loop.run)(begin, std::min(loop.end, begin + size));
  }
};

}  // namespace

void parallel_for(std::int64_t end, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& run) {
  if (end <= 0) return;
  const TorchInterface& torch = torch_interface();
  const std::int64_t parts = (end + grain - 1) / grain;
  if (parts == 1) return run(0, end);
  const OthersRun others;
  const bool is_parallel = torch.omp_parallel != nullptr && torch.torch_threads != nullptr &&
                           torch.omp_in_parallel() == 0 && torch.torch_threads() > 1;
  if (!is_parallel) return run(0, end);
  Loop loop{end, parts, &run};
  // The whole team, of which some may have nothing to do, as in torch's own loops: for a smaller one OpenMP
  // would end threads, and start them again for the next.
  torch.omp_parallel(&Loop::part, &loop, 0, 0);
}

std::string torch_version() { return torch_interface().version_text; }

}  // namespace gradvane::collectors
