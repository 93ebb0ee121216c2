"""Leaves out warnings that a program gets because of Gradvane. The functions of `warnings` for that make Python forget
what it has warned of once, and the program would read those again: a filter that is put in by hand does not."""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from typing import Any


class _Message:
    """The message of a filter: its `match` is called with the text of each warning. Who saves all filters and restores
    them later, as `catch_warnings` does in another thread, may bring this one back: it matches nothing by then."""

    def __init__(self, text: str | None) -> None:
        self._text = None if text is None else re.compile(text)
        self._thread = threading.get_ident()
        self.is_on = True

    def match(self, text: str) -> bool:
        if not self.is_on:
            return False
        return self._thread == threading.get_ident() if self._text is None else self._text.match(text) is not None


class Unwarned:
    """Of warnings that begin with `text`, a regular expression, in all threads; without it, of all in the thread that
    begins."""

    def __init__(self, text: str | None = None) -> None:
        self._text = text
        self._filter: Any = None

    def begin(self) -> None:
        self.end()
        self._filter = ("ignore", _Message(self._text), Warning, None, 0)
        filters: Any = warnings.filters  # said to be a sequence, and is a list
        filters.insert(0, self._filter)

    def end(self) -> None:
        """The program may have put in others meanwhile, or another list."""
        if self._filter is None:
            return
        self._filter[1].is_on = False
        filters: Any = warnings.filters
        with contextlib.suppress(ValueError):
            filters.remove(self._filter)
        self._filter = None

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()
