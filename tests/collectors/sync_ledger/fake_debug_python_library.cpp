// What only a debug build of Python has: beside it, an interpreter's layout counts as unknown.

// NOLINTNEXTLINE(readability-identifier-naming,bugprone-reserved-identifier): Python's name
extern "C" [[gnu::visibility("default")]] void _Py_NegativeRefcount() {}
