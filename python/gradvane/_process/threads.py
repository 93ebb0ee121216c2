"""Threads of ours: they take none of the program's signals, and some may still be in a call of torch's when it ends.

Up to CPython 3.13 a daemon thread that comes back from C++ while the interpreter ends is unwound through torch's frames,
which ends the process with SIGABRT. So the end of the program waits for such threads, for a short time. One that is
stuck for longer never comes back, and does no harm.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OF_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}
_PATIENCE = 3.0
"""seconds, for all of them"""
_left: list[threading.Thread] = []


def start(thread: threading.Thread) -> set[int]:
    """Starts it with all signals blocked, but those of faults: a program may block one and wait for it, and in a thread of
    ours it would be delivered. Returns what the caller has blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OF_FAULTS)
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return {int(number) for number in before}


@contextlib.contextmanager
def signals(blocked: Iterable[int]) -> Iterator[None]:
    """This thread has these blocked, and no others, within it."""
    before = signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
