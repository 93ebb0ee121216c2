#pragma once
// The end of a Python interpreter in this process, which comes long before that of the process.

namespace gradvane::inject {

/// Has `end` called when the interpreter begins to end, among what Python's atexit calls. Does nothing where
/// there is no interpreter. Any thread, without the GIL: Python's main thread does it at its next instruction.
/// Once a process; a program that ends before that instruction ends without the call.
void before_python_ends(void (*end)()) noexcept;

}  // namespace gradvane::inject
