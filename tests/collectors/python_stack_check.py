"""The probe as Python calls it, and the comparison of a stack as it reads it with what Python says."""

import ctypes
import sys

LIBRARY = sys.argv[1]
# The same functions twice: called without the GIL, as CUDA is by torch, and with it.
FREE, HELD = ctypes.CDLL(LIBRARY), ctypes.PyDLL(LIBRARY)
FREE.probe_version.restype = ctypes.c_char_p
HELD.probe_measure.restype = ctypes.c_double
for name in ("probe_table_of", "probe_confirms"):
    getattr(FREE, name).argtypes = [ctypes.c_char_p]
CALLBACK = ctypes.CFUNCTYPE(None)
HAS_QUALNAME = sys.version_info >= (3, 11)

scenarios = {}


def scenario(function):
    scenarios[function.__name__] = function
    return function


def read(library, most, room):
    """Rows of (line, function, file) of the caller's stack; the frame of this function left out."""
    out = ctypes.create_string_buffer(1 << 20)
    count = library.probe_walk(most + 1, ctypes.c_size_t(room), out, ctypes.c_size_t(len(out)))
    rows = [row.split("\x1f") for row in out.value.decode("utf-8").split("\x1e")[:-1]]
    assert len(rows) == count, (len(rows), count)
    return [(int(line), function, file) for line, function, file in rows[1:]]


def replaced(text):
    return "".join("\ufffd" if 0xD800 <= ord(c) <= 0xDFFF or c == "\0" else c for c in text)


def told(frame):
    rows = []
    while frame is not None:
        code = frame.f_code
        name = code.co_qualname if HAS_QUALNAME else code.co_name
        rows.append((frame.f_lineno or 0, replaced(name), replaced(code.co_filename)))
        frame = frame.f_back
    return rows


def check(most=200, room=4096):
    """The stack of the caller, in both ways; what was read is returned."""
    for library in (FREE, HELD):
        got, wanted = read(library, most, room), told(sys._getframe())
        assert got == wanted[:most], f"\nread {got}\ntold {wanted[:most]}"
    check.count += 1
    return got[1:]


check.count = 0
