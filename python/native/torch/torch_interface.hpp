#pragma once
// Torch's C interface, looked up in the torch that is loaded: it is the same in every torch from 2.9 on, while
// the interface for C++ is another one in each release.
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>

namespace gradvane::python {

/// A pointer to an at::Tensor, whose layout is not known here.
using TensorHandle = void*;

/// 0: it succeeded. What fails is logged by torch on the standard error, so nothing is asked that may fail.
template <typename... Arguments>
using Call = std::int32_t (*)(Arguments...);

struct TorchInterface {
  Call<TensorHandle, void**> data_ptr = nullptr;
  Call<TensorHandle, std::int64_t*> numel = nullptr;
  Call<TensorHandle, std::int64_t*> dim = nullptr;
  Call<TensorHandle, std::int64_t**> sizes = nullptr;
  Call<TensorHandle, std::int64_t**> strides = nullptr;
  Call<TensorHandle, std::int64_t*> storage_bytes = nullptr;
  Call<TensorHandle, std::int64_t*> storage_offset = nullptr;
  Call<TensorHandle, std::int32_t*> dtype = nullptr;
  Call<TensorHandle, std::int32_t*> layout = nullptr;
  Call<TensorHandle, std::int32_t*> device_type = nullptr;
  Call<TensorHandle, std::int32_t*> device_index = nullptr;
  Call<TensorHandle, bool*> is_contiguous = nullptr;
  Call<TensorHandle> delete_handle = nullptr;
  Call<TensorHandle, TensorHandle*> copy_handle = nullptr;
  Call<TensorHandle, TensorHandle> assign = nullptr;  ///< to the second what the first is of
  Call<void*, std::int64_t, const std::int64_t*, const std::int64_t*, std::int64_t, std::int32_t,
       std::int32_t, std::int32_t, TensorHandle*>
      from_blob = nullptr;
  /// Null in a torch without CUDA.
  Call<std::int32_t, void**> current_cuda_stream = nullptr;

  // Torch's numbers for what is distinguished here.
  std::int32_t cpu = 0, cuda = 0;
  std::int32_t strided = 0, sparse = 0;
  std::int32_t float32 = 0, float64 = 0, float16 = 0, bfloat16 = 0;
  std::int32_t complex64 = 0, complex128 = 0, complex32 = 0;

  // Torch's threads are those of the OpenMP that it was linked with. Null where there is none.
  void (*omp_parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  int (*omp_thread)() = nullptr;
  int (*omp_threads)() = nullptr;
  int (*omp_in_parallel)() = nullptr;
  /// Sets this thread's number of threads on its first call, as torch's own loops do.
  int (*torch_threads)() = nullptr;

  std::string version_text;                    ///< 2.11.0+cu130
  PyTypeObject* tensor_type = nullptr;         ///< torch._C.TensorBase
  PyTypeObject* plain_type = nullptr;          ///< torch.Tensor
  PyTypeObject* parameter_type = nullptr;      ///< torch.nn.Parameter
  PyObject* disable_torch_function = nullptr;  ///< torch._C.DisableTorchFunction
  PyObject* ops = nullptr;                     ///< the module gradvane._torch_ops
  PyObject* from_handle = nullptr;  ///< makes an object of a capsule, and takes its handle over
  std::int64_t handle_offset = 0;   ///< of the at::Tensor in a tensor's object

  // Attributes of a tensor, read without looking them up by name.
  getter grad = nullptr;
  getter version = nullptr;
  getter requires_grad = nullptr;

  // Functions of C++, which save an object or a call of Python. Null in a torch that lacks them, or whose answers
  // differ from Python's.
  bool (*implementation_requires_grad)(const void*) = nullptr;
  /// Of a parameter's implementation, borrowed; a handle of the undefined tensor where there is none.
  TensorHandle (*implementation_gradient)(const void*) = nullptr;
  /// Throws for an inference tensor.
  std::int64_t (*handle_version)(TensorHandle) = nullptr;

  const void* undefined = nullptr;  ///< the implementation of the undefined tensor
  TensorHandle undefined_tensor = nullptr;
  std::int64_t keys_offset = 0;  ///< of the dispatch keys in an implementation; 0: not known
  std::uint64_t plain_keys = 0;  ///< of dense tensors on a CPU or a CUDA device that wrap nothing
  std::uint64_t cuda_key = 0;    ///< what a CUDA device has among them, and a CPU has not

  [[nodiscard]] bool is_tensor(PyObject* object) const noexcept {
    PyTypeObject* type = Py_TYPE(object);  // most are of these two, and the question costs a walk
    return type == parameter_type || type == plain_type || PyType_IsSubtype(type, tensor_type) != 0;
  }
  /// Borrowed, as long as the object lives.
  [[nodiscard]] TensorHandle handle(PyObject* tensor) const noexcept {
    return reinterpret_cast<char*>(tensor) + handle_offset;
  }
  /// The TensorImpl: all that an at::Tensor holds.
  [[nodiscard]] static const void* implementation(TensorHandle handle) noexcept {
    return *static_cast<void**>(handle);
  }
  [[nodiscard]] const void* implementation(PyObject* tensor) const noexcept {
    return implementation(handle(tensor));
  }
  [[nodiscard]] std::uint64_t keys(const void* implementation) const noexcept {
    std::uint64_t keys = 0;
    std::memcpy(&keys, static_cast<const char*>(implementation) + keys_offset, sizeof keys);
    return keys;
  }
  /// Neither sparse nor quantized nor lazily negated, nor of a class of Python's that answers in its own way. False
  /// if that is not known.
  [[nodiscard]] bool is_plain(const void* implementation) const noexcept {
    return keys_offset != 0 && (keys(implementation) & ~plain_keys) == 0;
  }
};

/// Looks it up, once, when the module is loaded. Throws std::runtime_error where this torch lacks any of it.
void find_torch_interface();

/// For tests: which functions of C++ this torch has, and how to do without them, as with a later torch.
[[nodiscard]] std::map<std::string, bool> functions_of_cpp();
void do_without_functions_of_cpp() noexcept;

namespace detail {
inline TorchInterface* torch_interface = nullptr;
}
/// That of this process.
[[nodiscard]] inline const TorchInterface& torch_interface() noexcept {
  return *detail::torch_interface;
}

}  // namespace gradvane::python
