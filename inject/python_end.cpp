#include "inject/python_end.hpp"

#include <dlfcn.h>

#include <initializer_list>

namespace gradvane::inject {
namespace {

// Of CPython's stable interface, which is found at run time: most programs have none of it.
using Object = void;
struct MethodDef {
  const char* name;
  Object* (*function)(Object* self, Object* args);
  int flags;
  const char* doc;
};
constexpr int kNoArguments = 4;

template <typename T>
T symbol(const char* name) noexcept {
  return reinterpret_cast<T>(::dlsym(RTLD_DEFAULT, name));
}

void (*the_end)() = nullptr;

Object* end_now(Object*, Object*) {
  the_end();
  auto* none = symbol<Object*>("_Py_NoneStruct");
  if (const auto take = symbol<void (*)(Object*)>("Py_IncRef")) take(none);
  return none;
}

/// On Python's main thread, with the GIL. Whatever fails leaves no trace in the program.
int register_at_exit(void*) {
  static MethodDef method{"gradvane_end_of_counting", &end_now, kNoArguments, nullptr};
  const auto import = symbol<Object* (*)(const char*)>("PyImport_ImportModule");
  const auto attribute = symbol<Object* (*)(Object*, const char*)>("PyObject_GetAttrString");
  const auto make = symbol<Object* (*)(MethodDef*, Object*, Object*)>("PyCFunction_NewEx");
  const auto call = symbol<Object* (*)(Object*, ...)>("PyObject_CallFunctionObjArgs");
  const auto release = symbol<void (*)(Object*)>("Py_DecRef");
  const auto forget_error = symbol<void (*)()>("PyErr_Clear");
  if (import == nullptr || attribute == nullptr || make == nullptr || call == nullptr ||
      release == nullptr || forget_error == nullptr)
    return 0;
  Object* module = import("atexit");
  Object* add = module == nullptr ? nullptr : attribute(module, "register");
  Object* function = add == nullptr ? nullptr : make(&method, nullptr, nullptr);
  Object* result =
      function == nullptr ? nullptr : call(add, function, static_cast<Object*>(nullptr));
  for (Object* object : {module, add, function, result})
    if (object != nullptr) release(object);
  if (result == nullptr) forget_error();
  return 0;
}

}  // namespace

void before_python_ends(void (*end)()) noexcept {
  const auto is_initialized = symbol<int (*)()>("Py_IsInitialized");
  const auto add = symbol<int (*)(int (*)(void*), void*)>("Py_AddPendingCall");
  if (is_initialized == nullptr || add == nullptr || is_initialized() == 0) return;
  the_end = end;
  (void)add(&register_at_exit, nullptr);
}

}  // namespace gradvane::inject
