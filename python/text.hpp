#pragma once
// Text between Python and C++. Included by whatever hands strings over, before it does.
#include <pybind11/pybind11.h>

#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gradvane::python {

/// As os.fsdecode(): bytes that are not UTF-8, as names of files may have them, become surrogates. Throws
/// std::bad_alloc only.
inline pybind11::str decoded(std::string_view text) {
  PyObject* const object =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape");
  if (object == nullptr) {
    PyErr_Clear();
    throw std::bad_alloc();
  }
  return pybind11::reinterpret_steal<pybind11::str>(object);
}

/// Back to the bytes that a str was decoded from. Other surrogates, which are halves of characters, become "?".
inline std::string encoded(PyObject* text) {
  PyObject* bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
  if (bytes == nullptr) {
    PyErr_Clear();
    bytes = PyUnicode_AsEncodedString(text, "utf-8", "replace");
  }
  if (bytes == nullptr) {
    PyErr_Clear();
    throw std::bad_alloc();
  }
  const auto kept = pybind11::reinterpret_steal<pybind11::bytes>(bytes);
  return {PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

/// What a C++ error says may quote such bytes: the module that is being defined raises it all the same.
inline void raise_any_text() {
  pybind11::register_local_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const pybind11::builtin_exception&) {
      throw;  // pybind11's own
    } catch (const std::invalid_argument& invalid) {
      PyErr_SetObject(PyExc_ValueError, decoded(invalid.what()).ptr());
    } catch (const std::runtime_error& failed) {
      PyErr_SetObject(PyExc_RuntimeError, decoded(failed.what()).ptr());
    }
  });
}

}  // namespace gradvane::python

/// In the place of pybind11's own, which raises where text is not UTF-8.
template <>
struct pybind11::detail::type_caster<std::string> {
  PYBIND11_TYPE_CASTER(std::string, const_name("str"));

  bool load(handle source, bool /*convert*/) {
    if (!source) return false;
    PyObject* const object = source.ptr();
    if (PyBytes_Check(object)) {
      value.assign(PyBytes_AS_STRING(object), static_cast<std::size_t>(PyBytes_GET_SIZE(object)));
      return true;
    }
    if (!PyUnicode_Check(object)) return false;
    value = gradvane::python::encoded(object);
    return true;
  }

  static handle cast(const std::string& text, return_value_policy /*policy*/, handle /*parent*/) {
    return gradvane::python::decoded(text).release();
  }
};
