"""A stand-in for Gradvane that does harm on purpose, one kind at a time, so that the suite can be seen to fail.

HARM in the environment names the kind. attach() and `python -m gradvane run` do it at once, and nothing else.
"""

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
import warnings


class Agent:
    def detach(self):
        """Takes nothing back."""


def attach(*what, **options):
    HARMS[os.environ["HARM"]]()
    return Agent()


def _keeps_sigterm():
    signal.signal(signal.SIGTERM, lambda *_: None)


def _keeps_sigterm_in_c():
    """Python's own list of handlers does not show this one."""
    import ctypes

    _KEPT.append(ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: None))
    ctypes.CDLL(None).signal(signal.SIGTERM, _KEPT[-1])


def _draws_a_random_number():
    import torch

    torch.rand(1)


def _changes_gradients():
    import torch

    original = torch.autograd.backward

    def backward(tensors, *args, **kwargs):
        original([tensor * 1.000001 for tensor in tensors] if isinstance(tensors, tuple) else tensors * 1.000001,
                 *args, **kwargs)

    torch.autograd.backward = backward


def _leaves_an_import_hook():
    class Finder:
        def find_spec(self, *_):
            return None

    sys.meta_path.insert(0, Finder())


def _ends_with_another_status():
    atexit.register(os._exit, 1)


def _holds_up_the_end():
    atexit.register(time.sleep, 3600)


def _leaves_a_thread():
    threading.Thread(target=time.sleep, args=(3600,), name="left", daemon=True).start()


HARMS = {
    "keeps SIGTERM": _keeps_sigterm,
    "keeps SIGTERM, in C": _keeps_sigterm_in_c,
    "draws a random number": _draws_a_random_number,
    "changes gradients": _changes_gradients,
    "leaves an import hook": _leaves_an_import_hook,
    "leaves a descriptor": lambda: _KEPT.append(open("/dev/zero")),
    "leaves a file": lambda: open("left", "w").close(),
    "leaves a thread": _leaves_a_thread,
    "leaves a process": lambda: subprocess.Popen(["sleep", "3600"]),
    "leaves a variable": lambda: os.environ.update(LEFT="1"),
    "leaves a warning filter": lambda: warnings.simplefilter("ignore"),
    "leaves an excepthook": lambda: setattr(sys, "excepthook", lambda *_: None),
    "prints": lambda: print("hello"),
    "says something on the standard error": lambda: print("hello", file=sys.stderr),
    "ends with another status": _ends_with_another_status,
    "holds up the end": _holds_up_the_end,
}
"""Kind of harm to what does it."""
_KEPT = []
