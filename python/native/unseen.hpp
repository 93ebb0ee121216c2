#pragma once
// Our own reads of tensors, hidden from what a program puts around torch's functions.
#include "python/native/torch/torch_interface.hpp"

namespace gradvane::python {

/// While it lives, this thread's calls of torch run no __torch_function__: no mode's, as torch.set_default_device()
/// is one, and no subclass's. Where it is made without the GIL it does nothing.
class [[nodiscard]] Unseen {
 public:
  Unseen() noexcept {
    if (PyGILState_Check() == 0) return;
    scope_ = PyObject_CallNoArgs(torch_interface().disable_torch_function);
    if (scope_ != nullptr) Py_XDECREF(PyObject_CallMethod(scope_, "__enter__", nullptr));
    PyErr_Clear();  // no memory: then they see us
  }
  ~Unseen() {
    if (scope_ == nullptr) return;
    Py_XDECREF(PyObject_CallMethod(scope_, "__exit__", "OOO", Py_None, Py_None, Py_None));
    PyErr_Clear();
    Py_DECREF(scope_);
  }
  Unseen(const Unseen&) = delete;  // a scope
  Unseen& operator=(const Unseen&) = delete;

 private:
  PyObject* scope_ = nullptr;
};

}  // namespace gradvane::python
