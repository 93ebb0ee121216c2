#include "collectors/tensors/python_tensor.hpp"

#include <Python.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "python/native/torch/torch_interface.hpp"

namespace gradvane::collectors {

using python::torch_interface;

namespace {

/// References that were let go of without the GIL.
struct LetGo {
  std::mutex mutex;
  std::vector<PythonTensor> tensors;
  std::atomic<bool> any{false};

  /// With the GIL.
  void give_back() noexcept {
    if (!any.load(std::memory_order_relaxed)) return;
    std::vector<PythonTensor> now;  // let go of at the end, without the lock
    const std::lock_guard lock(mutex);
    now.swap(tensors);
    any.store(false, std::memory_order_relaxed);
  }
};

LetGo& let_go_of() {
  static auto& all = *new LetGo;  // outlives every tensor
  return all;
}

/// Handles without a tensor. To make and free thousands of them each step would cost more than what is read with
/// them. With the GIL.
class SpareHandles {
 public:
  void* copy_of(void* handle) noexcept {
    void* copy = nullptr;
    if (spare_.empty()) {
      (void)torch_interface().copy_handle(handle, &copy);
      return copy;
    }
    copy = spare_.back();
    spare_.pop_back();
    (void)torch_interface().assign(handle, copy);
    return copy;
  }

  void take(void* handle) noexcept {
    try {
      spare_.push_back(handle);
    } catch (...) {  // no memory for the list
      (void)torch_interface().delete_handle(handle);
      return;
    }
    (void)torch_interface().assign(torch_interface().undefined_tensor, handle);
  }

 private:
  std::vector<void*> spare_;
};

SpareHandles& spare_handles() {
  static auto& all = *new SpareHandles;
  return all;
}

}  // namespace

PythonTensor PythonTensor::of(_object* tensor) noexcept {
  Py_XINCREF(tensor);
  return taking(tensor);
}

PythonTensor PythonTensor::taking(_object* tensor) noexcept {
  PythonTensor result;
  result.object_ = tensor;
  if (tensor != nullptr) result.handle_ = torch_interface().handle(tensor);
  return result;
}

PythonTensor PythonTensor::copy_of(void* handle) noexcept {
  PythonTensor result;
  result.handle_ = spare_handles().copy_of(handle);
  return result;
}

PythonTensor::PythonTensor(const PythonTensor& other) noexcept {
  if (!other.defined()) return;
  const bool has_gil = PyGILState_Check() != 0;
  const PyGILState_STATE state = has_gil ? PyGILState_LOCKED : PyGILState_Ensure();
  *this = other.object_ != nullptr ? of(other.object_) : copy_of(other.handle_);
  if (!has_gil) PyGILState_Release(state);
}

void PythonTensor::let_go() noexcept {
  if (Py_IsInitialized() == 0) {  // the interpreter went first: there is nothing left to give back
    object_ = nullptr;
    handle_ = nullptr;
    return;
  }
  LetGo& later = let_go_of();
  if (PyGILState_Check() == 0) {
    const std::lock_guard lock(later.mutex);
    later.tensors.push_back(std::move(*this));
    later.any.store(true, std::memory_order_relaxed);
    return;
  }
  give_back();
  later.give_back();
}

/// With the GIL.
void PythonTensor::give_back() noexcept {
  void* handle = std::exchange(handle_, nullptr);
  if (PyObject* object = std::exchange(object_, nullptr); object != nullptr)
    Py_DECREF(object);
  else
    spare_handles().take(handle);
}

void PythonTensor::reset_all(std::span<PythonTensor> tensors) noexcept {
  const bool has_gil = Py_IsInitialized() != 0 && PyGILState_Check() != 0;
  for (PythonTensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (has_gil)
      tensor.give_back();
    else
      tensor.let_go();
  }
  if (has_gil) let_go_of().give_back();
}

}  // namespace gradvane::collectors
