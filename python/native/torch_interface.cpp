#include "python/native/torch_interface.hpp"

#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace gradvane::python {
namespace {

namespace py = pybind11;

/// A library that is loaded already; null where it is not. It stays loaded, as torch does.
void* loaded(const char* name) { return ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD); }

template <typename Function>
void look_up(void* library, const char* name, Function& function) {
  function = library == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library, name));
}

template <typename Function>
void require(void* library, const char* name, Function& function) {
  look_up(library, name, function);
  if (function == nullptr)
    throw std::runtime_error(std::string("this torch has no ") + name +
                             ", which gradvane reads tensors with; install torch 2.9 or newer");
}

std::int32_t number(void* library, const char* name) {
  std::int32_t (*function)() = nullptr;
  require(library, name, function);
  return function();
}

/// Where an object of Python's keeps its at::Tensor: the one word that is, in each of these, the address of the
/// tensor's implementation. Torch 2.15 has it in another place than 2.9.
std::int64_t find_handle(const TorchInterface& torch) {
  const py::module_ module = py::module_::import("torch");
  const py::object empty = module.attr("empty");
  const py::object parameter = module.attr("nn").attr("Parameter");
  py::list tensors;
  for (int i = 1; i <= 3; ++i) {
    tensors.append(empty(i));
    tensors.append(parameter(empty(i)));
  }
  const py::list handles =
      module.attr("_C").attr("_aoti").attr("unsafe_alloc_void_ptrs_from_tensors")(tensors);
  std::vector<const void*> implementations;
  for (const py::handle capsule : handles) {
    void* handle = PyCapsule_GetPointer(capsule.ptr(), PyCapsule_GetName(capsule.ptr()));
    if (handle == nullptr) throw py::error_already_set();
    implementations.push_back(*static_cast<void**>(handle));  // all that an at::Tensor holds
    torch.delete_handle(handle);
  }
  const auto size = static_cast<std::int64_t>(torch.tensor_type->tp_basicsize);
  for (auto offset = static_cast<std::int64_t>(sizeof(PyObject)); offset + 8 <= size; offset += 8) {
    bool is_in_all = true;
    for (std::size_t i = 0; i < implementations.size(); ++i) {
      const void* word = nullptr;
      std::memcpy(static_cast<void*>(&word),
                  reinterpret_cast<const char*>(tensors[i].ptr()) + offset, sizeof word);
      is_in_all = is_in_all && word == implementations[i];
    }
    if (is_in_all) return offset;
  }
  throw std::runtime_error(
      "gradvane cannot find the tensor in this torch's objects: this torch is newer than gradvane; "
      "install a newer gradvane");
}

getter getter_of(const py::object& type, const char* name) {
  const py::object attribute = type.attr("__dict__")[name];
  if (Py_TYPE(attribute.ptr()) != &PyGetSetDescr_Type)
    throw std::runtime_error(std::string("torch.Tensor.") + name +
                             " is none that gradvane can read; install a newer gradvane");
  return reinterpret_cast<PyGetSetDescrObject*>(attribute.ptr())->d_getset->get;
}

TorchInterface found() {
  TorchInterface torch;
  void* cpu = loaded("libtorch_cpu.so");
  require(cpu, "aoti_torch_get_data_ptr", torch.data_ptr);
  require(cpu, "aoti_torch_get_numel", torch.numel);
  require(cpu, "aoti_torch_get_dim", torch.dim);
  require(cpu, "aoti_torch_get_sizes", torch.sizes);
  require(cpu, "aoti_torch_get_strides", torch.strides);
  require(cpu, "aoti_torch_get_storage_size", torch.storage_bytes);
  require(cpu, "aoti_torch_get_storage_offset", torch.storage_offset);
  require(cpu, "aoti_torch_get_dtype", torch.dtype);
  require(cpu, "aoti_torch_get_layout", torch.layout);
  require(cpu, "aoti_torch_get_device_type", torch.device_type);
  require(cpu, "aoti_torch_get_device_index", torch.device_index);
  require(cpu, "aoti_torch_is_contiguous", torch.is_contiguous);
  require(cpu, "aoti_torch_delete_tensor_object", torch.delete_handle);
  require(cpu, "aoti_torch_create_tensor_from_blob", torch.from_blob);
  look_up(loaded("libtorch_cuda.so"), "aoti_torch_get_current_cuda_stream",
          torch.current_cuda_stream);
  // One that does not make a lazy copy real, in a torch that has it.
  Call<TensorHandle, const void**> constant = nullptr;
  look_up(cpu, "torch_get_const_data_ptr", constant);
  if (constant != nullptr) torch.data_ptr = reinterpret_cast<decltype(torch.data_ptr)>(constant);

  torch.cpu = number(cpu, "aoti_torch_device_type_cpu");
  torch.cuda = number(cpu, "aoti_torch_device_type_cuda");
  torch.strided = number(cpu, "aoti_torch_layout_strided");
  torch.sparse = number(cpu, "aoti_torch_layout_sparse_coo");
  torch.float32 = number(cpu, "aoti_torch_dtype_float32");
  torch.float64 = number(cpu, "aoti_torch_dtype_float64");
  torch.float16 = number(cpu, "aoti_torch_dtype_float16");
  torch.bfloat16 = number(cpu, "aoti_torch_dtype_bfloat16");
  torch.complex64 = number(cpu, "aoti_torch_dtype_complex64");
  torch.complex128 = number(cpu, "aoti_torch_dtype_complex128");
  torch.complex32 = number(cpu, "aoti_torch_dtype_complex32");

  void* openmp = loaded("libgomp.so.1");
  look_up(openmp, "GOMP_parallel", torch.omp_parallel);
  look_up(openmp, "omp_get_thread_num", torch.omp_thread);
  look_up(openmp, "omp_get_num_threads", torch.omp_threads);
  look_up(openmp, "omp_in_parallel", torch.omp_in_parallel);
  look_up(cpu, "_ZN2at15get_num_threadsEv", torch.torch_threads);

  const py::module_ module = py::module_::import("torch");
  torch.version_text = py::str(module.attr("__version__"));
  const py::object base = module.attr("_C").attr("TensorBase");
  torch.tensor_type = reinterpret_cast<PyTypeObject*>(base.ptr());
  torch.plain_type = reinterpret_cast<PyTypeObject*>(module.attr("Tensor").ptr());
  torch.parameter_type = reinterpret_cast<PyTypeObject*>(module.attr("nn").attr("Parameter").ptr());
  torch.disable_torch_function =
      py::object(module.attr("_C").attr("DisableTorchFunction")).release().ptr();
  torch.ops = py::module_::import("gradvane._torch_ops").release().ptr();
  torch.grad = getter_of(base, "grad");
  torch.version = getter_of(base, "_version");
  torch.requires_grad = getter_of(base, "requires_grad");
  torch.handle_offset = find_handle(torch);
  // A function of C++, which a torch to come may not have: it is used if it says what Python says.
  look_up(loaded("libc10.so"), "_ZNK2c1010TensorImpl13requires_gradEv",
          torch.implementation_requires_grad);
  const py::object plain = module.attr("empty")(1);
  const py::object parameter = module.attr("nn").attr("Parameter")(plain);
  const auto says = [&](const py::object& tensor) {
    return torch.implementation_requires_grad(torch.implementation(tensor.ptr()));
  };
  if (torch.implementation_requires_grad != nullptr && (says(plain) || !says(parameter)))
    torch.implementation_requires_grad = nullptr;
  return torch;
}

}  // namespace

void find_torch_interface() {
  if (detail::torch_interface == nullptr) detail::torch_interface = new TorchInterface(found());
}

}  // namespace gradvane::python
