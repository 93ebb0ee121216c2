"""Threads of ours that may still be in a call of torch's when the program ends.

Up to CPython 3.13 a daemon thread that comes back from C++ while the interpreter ends is unwound through torch's frames,
which ends the process with SIGABRT. So the end of the program waits for such threads, for a short time. One that is
stuck for longer never comes back, and does no harm.
"""

from __future__ import annotations

import contextlib
import threading
import time

_PATIENCE = 3.0
"""seconds, for all of them"""
_left: list[threading.Thread] = []


def keep(thread: threading.Thread) -> None:
    """`thread` has been told to end, or ends by itself, and may take a while."""
    _left[:] = [one for one in _left if one.is_alive()]
    if thread.is_alive():
        _left.append(thread)


def join_left() -> None:
    """At the end of the program."""
    until = time.monotonic() + _PATIENCE
    with contextlib.suppress(KeyboardInterrupt):
        while _left:
            _left.pop().join(max(0.0, until - time.monotonic()))
