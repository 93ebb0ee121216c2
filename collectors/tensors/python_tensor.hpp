#pragma once
// A tensor of Python's: a reference to its object, or to the tensor alone.
#include <span>
#include <utility>

struct _object;  // Python's name of PyObject. NOLINT(readability-identifier-naming)

namespace gradvane::collectors {

/// What a handle of torch's own does, for code that is compiled with either. Copying takes the GIL if this
/// thread does not hold it. Letting go does not wait for it: then the reference is given back later.
class PythonTensor {
 public:
  PythonTensor() noexcept = default;
  /// Of a torch.Tensor. With the GIL.
  [[nodiscard]] static PythonTensor of(_object* tensor) noexcept;
  /// The same, and takes the reference over.
  [[nodiscard]] static PythonTensor taking(_object* tensor) noexcept;
  /// Of an at::Tensor. Makes no object of Python's, which would cost more than all that is read of a small
  /// gradient. With the GIL. Undefined if there is no memory.
  [[nodiscard]] static PythonTensor copy_of(void* handle) noexcept;

  PythonTensor(const PythonTensor& other) noexcept;
  PythonTensor(PythonTensor&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)),
        handle_(std::exchange(other.handle_, nullptr)) {}
  PythonTensor& operator=(PythonTensor other) noexcept {
    std::swap(object_, other.object_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~PythonTensor() { reset(); }

  [[nodiscard]] bool defined() const noexcept { return handle_ != nullptr; }
  void reset() noexcept {
    if (handle_ != nullptr) let_go();
  }
  /// Borrowed; null: undefined, or without an object.
  [[nodiscard]] _object* object() const noexcept { return object_; }
  /// The at::Tensor, borrowed; null: undefined.
  [[nodiscard]] void* handle() const noexcept { return handle_; }

  /// reset() of each, which asks once who has the GIL.
  static void reset_all(std::span<PythonTensor> tensors) noexcept;

 private:
  void let_go() noexcept;
  void give_back() noexcept;

  _object* object_ = nullptr;
  void* handle_ = nullptr;  ///< in the object, or of our own if there is none
};

}  // namespace gradvane::collectors
