#pragma once
// A tensor of Python's: a reference to its object.
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

  PythonTensor(const PythonTensor& other) noexcept;
  PythonTensor(PythonTensor&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  PythonTensor& operator=(PythonTensor other) noexcept {
    _object* mine = object_;
    object_ = other.object_;
    other.object_ = mine;
    return *this;
  }
  ~PythonTensor() { reset(); }

  [[nodiscard]] bool defined() const noexcept { return object_ != nullptr; }
  void reset() noexcept {
    if (object_ != nullptr) let_go();
  }
  /// Borrowed; null: undefined.
  [[nodiscard]] _object* object() const noexcept { return object_; }

 private:
  void let_go() noexcept;

  _object* object_ = nullptr;
};

}  // namespace gradvane::collectors
