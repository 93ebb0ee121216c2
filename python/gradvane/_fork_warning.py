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

    The filter has to stay. From 3.13 on the warning comes after the last hook of the fork.
    """

    def __init__(self) -> None:
        self.is_ours = False
        """whether the fork that was begun last found no thread of the program's but its own"""

    def __reduce__(self) -> tuple[Any, ...]:
        """Where filters are sent to other processes: there it leaves out nothing."""
        return re.compile, ("(?!)",)

    def match(self, text: str) -> bool:
        return self.is_ours and _TEXT.match(text) is not None


_message = _Message()
_filter: Any = ("ignore", _message, DeprecationWarning, None, 0)


def leave_out(is_watched: Callable[[], bool]) -> None:
    """From now on. `is_watched` tells whether threads of Gradvane's may run."""

    def before() -> None:
        _message.is_ours = is_watched() and _program_has_one_thread()
        # In front of the program's own: one of them may turn warnings into errors.
        filters: Any = warnings.filters  # said to be a sequence, and is a list
        if _message.is_ours and (not filters or filters[0] is not _filter):
            while _filter in filters:  # others were put before it
                filters.remove(_filter)
            filters.insert(0, _filter)

    def in_child() -> None:
        _message.is_ours = False

    if sys.version_info >= (3, 12) and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_child=in_child)


def _program_has_one_thread() -> bool:
    """Whether all threads of this process but the one that forks are Gradvane's. False where nobody can tell."""
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
