"""Which place a host sync is booked on where no line of the user's is there, or none can be read."""

import re
import sys

import planted
import pytest
import running

CALLS = 5
SCRIPT = f"""
    import ctypes, os
    if "FAKE_DEBUG_PYTHON" in os.environ:
        ctypes.CDLL(os.environ["FAKE_DEBUG_PYTHON"], ctypes.RTLD_GLOBAL)
    cuda = ctypes.CDLL(os.environ["FAKE_CUDA"])
    ctypes.CDLL("libcuda.so.1").cuInit(0)

    class Method(ctypes.Structure):
        _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
                    ("text", ctypes.c_char_p)]

    # As torch's own functions are: called by the interpreter itself, while ctypes would stand in between.
    definition = Method(b"wait", ctypes.cast(cuda.fake_method, ctypes.c_void_p).value, 0x4, None)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    this = object()
    wait = new(ctypes.addressof(definition), this, None)
    for _ in range({CALLS}):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(this))
        assert wait() is this  # here
"""


@pytest.mark.parametrize("is_read", [True, False])
def test_where_the_interpreter_is_not_known_its_own_functions_are_no_places(tmp_path, is_read):
    script = running.write(tmp_path, SCRIPT)
    unknown = {} if is_read else {"FAKE_DEBUG_PYTHON": str(planted.BUILD / "lib" / "libgradvane_fake_debug_python.so")}
    # A shell's name, so that the script is not run by `gradvane run`: no agent, no torch.
    done = planted.syncs("--json", "sh", "-c", f"exec {sys.executable} {script}", cwd=tmp_path, **unknown)
    (document,) = planted.documents(done)
    (site,) = document["sites"]
    assert (site["kind"], site["calls"]) == ("device", CALLS)
    if is_read:
        assert site["location"] == f"train.py:{planted.line_of(script, 'here')}" and "detail" not in document
        return
    # Nothing native calls it but the interpreter: the thread is all that is known, and why is reported.
    assert site["location"] == f"thread {site['thread']}", site
    assert re.fullmatch(r"the lines of Python 3\.\d+\.\d+\S* are not known", document["detail"])


OF_TORCH = """
def pin():
    cuda.fake_synchronize(1000)

def pin_memory_loop():
    for _ in range(CALLS):
        pin()  # outermost
"""
THREAD = f"""
    import ctypes, os, threading
    cuda = ctypes.CDLL(os.environ["FAKE_CUDA"])
    ctypes.CDLL("libcuda.so.1").cuInit(0)
    module = dict(cuda=cuda, CALLS={CALLS})
    exec(compile({OF_TORCH!r}, "/venv/lib/python3/site-packages/torch/utils/data/pin.py", "exec"), module)
    loader = threading.Thread(target=module["pin_memory_loop"])
    loader.start()
    loader.join()
"""


def test_a_thread_of_torchs_own_is_known_by_where_torch_began(tmp_path):
    script = running.write(tmp_path, THREAD)
    done = planted.syncs("--json", "sh", "-c", f"exec {sys.executable} {script}", cwd=tmp_path)
    (document,) = planted.documents(done)
    (site,) = document["sites"]
    line = next(n for n, text in enumerate(OF_TORCH.splitlines(), 1) if text.endswith("# outermost"))
    assert (site["location"].rsplit("/", 1)[-1], site["function"]) == (f"pin.py:{line}", "pin_memory_loop"), "not threading.py"
    assert site["calls"] == CALLS
