#pragma once
// The GIL, given up for as long as C++ works or waits.
#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace gradvane::python {

/// Takes the GIL back. A thread that comes back while Python shuts down stays here until the process is
/// gone: up to Python 3.13 such a thread is ended by unwinding its stack, and to unwind through a
/// destructor, as of pybind11's class for this, aborts the process.
inline void take_gil_back(PyThreadState* state) {
  try {
    PyEval_RestoreThread(state);
  } catch (const abi::__forced_unwind&) {
    for (;;) ::pause();
  }
}

/// Gives the GIL up while it lives.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() { take_gil_back(state_); }
  GilReleased(const GilReleased&) = delete;  // a scope
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace gradvane::python
