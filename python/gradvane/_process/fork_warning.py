"""From CPython 3.12 on, os.fork() warns in a process with several threads. A program that has one thread of its own
does not get that warning because of Gradvane's threads."""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_TEXT = re.compile(r"This process \(pid=\d+\) is multi-threaded, use of \w+\(\) may lead to deadlocks in the child")
_MANY = 32
"""so many threads are not ours alone, and need not be looked at"""


class _Message:
    """The message of a filter of warnings: its `match` is called with the text of each warning.

    From 3.13 on the warning comes after the last hook of the fork, so the filter takes itself away.
    """

    def match(self, text: str) -> bool:
        if _TEXT.match(text) is None:
            return False
        _take_away()
        return True


_filter: Any = ("ignore", _Message(), DeprecationWarning, None, 0)


def _take_away() -> None:
    filters: Any = warnings.filters  # said to be a sequence, and is a list
    while _filter in filters:
        filters.remove(_filter)


def leave_out(is_watched: Callable[[], bool]) -> None:
    """From now on. `is_watched` tells whether threads of Gradvane's may run."""

    def before() -> None:
        _take_away()  # there was no warning the last time
        if is_watched() and _program_has_one_thread():
            filters: Any = warnings.filters
            filters.insert(0, _filter)  # in front of the program's own: one of them may turn warnings into errors

    if sys.version_info >= (3, 12) and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_child=_take_away)


def _program_has_one_thread() -> bool:
    """Whether all threads of this process but the one that forks are Gradvane's. False if that cannot be told."""
    try:
        threads = os.listdir("/proc/self/task")
        if len(threads) > _MANY:
            return False
        # Before 3.14 a thread of Python has no name that /proc tells.
        ours = {str(thread.native_id) for thread in threading.enumerate() if thread.name.startswith("gradvane")}
        return all(number in ours or _is_named_ours(number) for number in threads if number != str(threading.get_native_id()))
    except OSError:
        return False


def _is_named_ours(thread: str) -> bool:
    with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().startswith("gradvane")
