"""Leaves out warnings that a program gets because of Gradvane. The functions of `warnings` for that make Python forget
what it has warned of once, and the program would read those again: a filter that is put in by hand does not."""

from __future__ import annotations

import re
import threading
import warnings
from typing import Any


class _OfThread:
    """A filter's message, whose `match` is called with the text of each warning: whatever one thread is warned of."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def match(self, _: str) -> bool:
        return threading.get_ident() == self._thread


class Unwarned:
    """Of warnings that begin with `text`, a regular expression, in all threads; without it, of all in the thread that
    made it."""

    def __init__(self, text: str | None = None) -> None:
        self._filter = ("ignore", _OfThread() if text is None else re.compile(text), Warning, None, 0)

    def begin(self) -> None:
        filters: Any = warnings.filters  # said to be a sequence, and is a list
        filters.insert(0, self._filter)

    def end(self) -> None:
        """The program may have put in others meanwhile, or another list."""
        filters: Any = warnings.filters
        filters[:] = [one for one in filters if one is not self._filter]

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()
