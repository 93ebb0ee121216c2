#include "python/native/torch/live_objects_python.hpp"

namespace gradvane::python {
namespace {

namespace py = pybind11;

bool is_a(PyObject* thing, const py::type& kind) {
  return PyType_IsSubtype(Py_TYPE(thing), reinterpret_cast<PyTypeObject*>(kind.ptr())) != 0;
}

void add(py::list& found, const py::object& things, const py::type& kind, const py::type& but) {
  const Py_ssize_t count = PyList_GET_SIZE(things.ptr());
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* thing = PyList_GET_ITEM(things.ptr(), i);
    // Among all objects is the list itself, which would keep them, and itself, until a collection.
    if (thing != found.ptr() && is_a(thing, kind) && !is_a(thing, but))
      found.append(py::handle(thing));
  }
}

/// What is in the collector's list of everything is held by it. Were Python to run meanwhile, a tensor could be freed
/// by its owner, in any thread, while the list still holds its Python object. Until version 2.10 torch warns of that
/// and leaves the object unusable. So nothing of Python's runs from the time that the list is there until it is gone.
py::list live_objects(const py::type& kind, const py::type& but, bool among_young) {
  const py::object get_objects = py::module_::import("gc").attr("get_objects");
  py::list found;
  if (!among_young) {
    add(found, get_objects(), kind, but);
    return found;
  }
  // The second list is made when the first is gone: to make one may start a collection.
  for (const int generation : {0, 1}) add(found, get_objects(generation), kind, but);
  return found;
}

}  // namespace

void define_live_objects(py::module_& module) {
  module.def("live_objects", &live_objects, py::arg("kind"), py::arg("but"),
             py::arg("among_young"));
}

}  // namespace gradvane::python
