#include "python/native/torch/torch_interface.hpp"

#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "python/text.hpp"

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

/// The word of a tensor's implementation that holds its dispatch keys. A torch that has it in no place, or does not
/// say what it should be, leaves the offset 0.
void find_keys(TorchInterface& torch) try {
  const py::module_ module = py::module_::import("torch");
  const py::object core = module.attr("_C");
  const auto raw = [](const py::object& keys) {
    return py::cast<std::uint64_t>(keys.attr("raw_repr")());
  };
  const auto keys_of = [&](const py::handle tensor) {
    return raw(core.attr("_dispatch_keys")(tensor));
  };
  const py::object plain = module.attr("empty")(2);
  py::list tensors;
  tensors.append(plain);
  tensors.append(module.attr("nn").attr("Parameter")(plain));
  tensors.append(module.attr("zeros")(2, 2).attr("to_sparse")());
  tensors.append(module.attr("empty")(2, py::arg("device") = "meta"));
  tensors.append(module.attr("_neg_view")(plain));
  constexpr std::int64_t kEnd = 192;  // The implementation is no smaller in any torch.
  for (std::int64_t offset = 8; offset < kEnd; offset += 8) {
    bool is_in_all = true;
    for (const py::handle tensor : tensors) {
      std::uint64_t word = 0;
      std::memcpy(&word, static_cast<const char*>(torch.implementation(tensor.ptr())) + offset,
                  sizeof word);
      is_in_all = is_in_all && word == keys_of(tensor);
    }
    if (!is_in_all) continue;
    const auto key = [&](const char* name) {
      return raw(core.attr("DispatchKeySet")(core.attr("DispatchKey").attr(name)));
    };
    torch.plain_keys = keys_of(plain) | key("CUDA") | key("AutogradCUDA") | key("AutocastCUDA");
    torch.cuda_key = key("CUDA") & ~key("CPU");
    torch.keys_offset = offset;
    return;
  }
} catch (const py::error_already_set&) {
  torch.keys_offset = 0;
}

/// Leaves out each function of C++ that does not say of these tensors what Python says.
void check_functions(TorchInterface& torch) {
  const py::module_ module = py::module_::import("torch");
  const py::object plain = module.attr("zeros")(1);
  const py::object parameter = module.attr("nn").attr("Parameter")(module.attr("zeros")(1));
  const py::object gradient = module.attr("zeros")(1);
  parameter.attr("grad") = gradient;
  const void* plain_one = torch.implementation(plain.ptr());
  const void* trained = torch.implementation(parameter.ptr());

  const auto requires_grad = torch.implementation_requires_grad;
  if (requires_grad != nullptr && (requires_grad(plain_one) || !requires_grad(trained)))
    torch.implementation_requires_grad = nullptr;

  if (torch.implementation_gradient != nullptr) {
    const auto gradient_of = [&](const void* implementation) {
      return TorchInterface::implementation(torch.implementation_gradient(implementation));
    };
    const bool is_right = gradient_of(trained) == torch.implementation(gradient.ptr()) &&
                          gradient_of(plain_one) == torch.undefined;
    if (!is_right) torch.implementation_gradient = nullptr;
  }

  const auto version = torch.handle_version;
  if (version != nullptr) {
    bool is_right = version(torch.handle(plain.ptr())) == 0;
    (void)plain.attr("add_")(1);
    is_right = is_right && version(torch.handle(plain.ptr())) == 1;
    if (!is_right) torch.handle_version = nullptr;
  }
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
  require(cpu, "aoti_torch_new_tensor_handle", torch.copy_handle);
  require(cpu, "aoti_torch_assign_tensors", torch.assign);
  Call<TensorHandle*> make_undefined = nullptr;
  require(cpu, "aoti_torch_new_uninitialized_tensor", make_undefined);
  (void)make_undefined(&torch.undefined_tensor);
  torch.undefined = TorchInterface::implementation(torch.undefined_tensor);
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
  torch.from_handle =
      py::object(module.attr("_C").attr("_aoti").attr("alloc_tensor_by_stealing_from_void_ptr"))
          .release()
          .ptr();
  torch.handle_offset = find_handle(torch);
  look_up(loaded("libc10.so"), "_ZNK3c1010TensorImpl13requires_gradEv",
          torch.implementation_requires_grad);
  look_up(loaded("libc10.so"), "_ZNK3c1010TensorImpl4gradEv", torch.implementation_gradient);
  look_up(cpu, "_ZNK2at10TensorBase8_versionEv", torch.handle_version);
  find_keys(torch);
  check_functions(torch);
  return torch;
}

}  // namespace

void find_torch_interface() {
  if (detail::torch_interface == nullptr) detail::torch_interface = new TorchInterface(found());
}

std::map<std::string, bool> functions_of_cpp() {
  const TorchInterface& torch = torch_interface();
  return {{"requires_grad", torch.implementation_requires_grad != nullptr},
          {"grad", torch.implementation_gradient != nullptr},
          {"version", torch.handle_version != nullptr},
          {"dispatch_keys", torch.keys_offset != 0}};
}

void do_without_functions_of_cpp() noexcept {
  TorchInterface& torch = *detail::torch_interface;
  torch.implementation_requires_grad = nullptr;
  torch.implementation_gradient = nullptr;
  torch.handle_version = nullptr;
  torch.keys_offset = 0;
}

}  // namespace gradvane::python
