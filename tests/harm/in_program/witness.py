"""Writes down what a person or another library could see of the process at this moment."""

import contextlib
import gc
import hashlib
import json
import logging
import os
import random
import resource
import signal
import stat
import sys
import threading
import time
import warnings
from pathlib import Path

FOLDER = Path.cwd()


def look(name, *trained):
    """One line in looks.jsonl. `trained`: modules, optimizers and tensors whose numbers are compared."""
    import torch

    settle()
    seen = {
        "look": name,
        "weights": [numbers(thing) for thing in trained],
        "random numbers": digest(torch.get_rng_state().numpy().tobytes(), repr(random.getstate()).encode()),
        "environment": dict(os.environ),
        "import system": import_system(torch),
        "signal handlers": handlers(),
        "signals": signals(),
        "descriptors": descriptors(),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "native threads": len(os.listdir("/proc/self/task")),
        "hooks of the interpreter": interpreter_hooks(),
        "settings": settings(torch),
    }
    with open(FOLDER / "looks.jsonl", "a") as file:
        file.write(json.dumps(seen) + "\n")


def settle():
    """What is free goes, and threads that are about to end do, so that chance is not taken for a difference."""
    gc.collect()
    before, now = None, state()
    deadline = time.monotonic() + 3
    while now != before and time.monotonic() < deadline:
        time.sleep(0.05)
        before, now = now, state()


def state():
    return len(os.listdir("/proc/self/task")), len(threading.enumerate()), descriptors()


def numbers(thing):
    import torch

    if isinstance(thing, torch.nn.Module):
        return [numbers(tensor) for tensor in thing.state_dict().values()]
    if isinstance(thing, torch.optim.Optimizer):
        return [[key, numbers(value)] for state in thing.state_dict()["state"].values()
                for key, value in sorted(state.items())]
    if isinstance(thing, torch.Tensor):
        thing = thing.full_tensor() if hasattr(thing, "full_tensor") else thing
        return [repr(value) for value in thing.detach().flatten().tolist()]
    return repr(thing)


def digest(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def import_system(torch):
    loader = torch.__spec__.loader
    return {
        "meta_path": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
        "path_hooks": [getattr(hook, "__qualname__", repr(type(hook))) for hook in sys.path_hooks],
        "path": sys.path,
        "argv": sys.argv,
        "torch's loader": [type(loader).__name__, sorted(vars(loader)), torch.__loader__ is loader],
        "main": {name: repr(getattr(sys.modules["__main__"], name, None))
                 for name in ("__name__", "__file__", "__package__", "__cached__", "__doc__")},
    }


def handlers():
    return {number.name: repr(signal.getsignal(number)).partition(" at 0x")[0] for number in signal.Signals}


def signals():
    """What the kernel would do with each signal. Python's own list does not know of handlers set by others."""
    masks = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines() if line[:3] == "Sig")
    return {key: [number.name for number in signal.Signals if int(masks[key], 16) >> (number - 1) & 1]
            for key in ("SigBlk", "SigIgn", "SigCgt")}


def descriptors():
    """Without numbers: what is open, sorted."""
    seen = []
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them
            target = os.readlink(f"/proc/self/fd/{entry}")
            if "/proc/" in target:
                continue
            kind = stat.S_IFMT(os.fstat(int(entry)).st_mode)
            seen.append({stat.S_IFSOCK: "socket", stat.S_IFIFO: "pipe"}.get(kind, target))
    return sorted(seen)


def interpreter_hooks():
    return {
        "excepthook": sys.excepthook is sys.__excepthook__,
        "threads' excepthook": threading.excepthook is threading.__excepthook__,
        "unraisablehook": sys.unraisablehook is sys.__unraisablehook__,
        "displayhook": sys.displayhook is sys.__displayhook__,
        "trace": repr(sys.gettrace()),
        "profile": repr(sys.getprofile()),
        "collector": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)],
        "warnings": [repr(one) for one in warnings.filters],
        "root logger": [logging.getLogger().level, len(logging.getLogger().handlers), logging.raiseExceptions],
        "streams": [[stream.encoding, stream.errors, stream.line_buffering] if stream else None
                    for stream in (sys.stdin, sys.stdout, sys.stderr)],
    }


def settings(torch):
    umask = os.umask(0)
    os.umask(umask)
    limits = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {
        "umask": umask,
        "folder": os.getcwd() if os.path.exists("/proc/self/cwd/.") else "gone",
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in limits},
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "cores": sorted(os.sched_getaffinity(0)),
        "recursion": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "torch": [torch.get_num_threads(), str(torch.get_default_dtype()), torch.is_grad_enabled(),
                  torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled(),
                  torch.cuda.is_initialized()],
    }


@contextlib.contextmanager
def part(name, is_one_of_several):
    """A program in its process: its output is told apart by this line, and what it raises does not end the others."""
    for stream in (sys.stdout, sys.stderr):
        print("==", name, file=stream, flush=True)
    try:
        yield
    except Exception as error:
        if not is_one_of_several:
            raise
        print("raised", type(error).__name__, error)
    for stream in (sys.stdout, sys.stderr):
        if stream:
            stream.flush()
