"""Profilers that take the one CUPTI subscription of a process while they run: PyTorch's and Triton's Proton.

Whoever counts host syncs is told before one begins and when it is done. One that does not begin after all, or is
dropped before its end, is done too.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import TYPE_CHECKING, Any

from gradvane import _imports
from gradvane._log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradvane._watch.watcher import Watcher

    _Watching = Callable[[], Watcher | None]

PYTORCH = "PyTorch's profiler"
PROTON = "Triton's Proton"
LIBPROTON = "triton._C.libproton"
MULTIPLE_SUBSCRIBERS = "error 39"
"""of CUPTI, in Proton's words"""

_running: dict[Any, str] = {}
"""those that have begun and not ended, by a key of their own"""
_sessions: set[Any] = set()
"""of Proton, by its own number"""
_gone: list[int] = []
"""of PyTorch's: dropped before their end, and nobody has been told"""


def running() -> list[str]:
    return list(_running.values())


def forget() -> None:
    """Nobody sees their end from now on."""
    _running.clear()
    _sessions.clear()
    _gone.clear()


def tell_gone(watching: _Watching) -> None:
    """A profiler may be dropped at any moment and on any thread, so its end is told a little later."""
    while _gone:
        _ends(_gone.pop(), watching)


def _begins(key: Any, name: str, watching: _Watching) -> None:
    if key in _running:
        return
    watcher = watching()
    if watcher is not None:
        watcher.profiler_begins(name)
    _running[key] = name


def _ends(key: Any, watching: _Watching) -> None:
    if _running.pop(key, None) is None:  # it was disabled, or its end has been told
        return
    watcher = watching()
    if watcher is not None:
        watcher.profiler_ended()


def prepare_trace(original: Callable[..., Any], watching: _Watching) -> Callable[..., Any]:
    def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
        tell_gone(watching)
        key = id(self)
        if key not in _running:
            weakref.finalize(self, _gone.append, key).atexit = False
        _begins(key, PYTORCH, watching)
        return _or_none(lambda: _ends(key, watching), original, self, *args, **kwargs)

    return prepare


def start_trace(original: Callable[..., Any], watching: _Watching) -> Callable[..., Any]:
    def start(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _or_none(lambda: _ends(id(self), watching), original, self, *args, **kwargs)

    return start


def exit_profiler(original: Callable[..., Any], watching: _Watching) -> Callable[..., Any]:
    def exit_(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            _ends(id(self), watching)

    return exit_


def start_session(original: Callable[..., Any], watching: _Watching) -> Callable[..., Any]:
    """Of Proton; its fourth argument is what it profiles with."""

    def start(*args: Any, **kwargs: Any) -> Any:
        backend = args[3] if len(args) > 3 else kwargs.get("backend")
        if backend != "cupti":
            return original(*args, **kwargs)
        _begins(PROTON, PROTON, watching)
        try:
            session = _or_none(lambda: _end_proton(watching), original, *args, **kwargs)
        except RuntimeError as error:
            if MULTIPLE_SUBSCRIBERS in str(error):
                _say_that_it_came_too_late()
            raise
        _sessions.add(session)
        return session

    return start


def end_session(original: Callable[..., Any], watching: _Watching) -> Callable[..., Any]:
    def finalize(session: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(session, *args, **kwargs)
        finally:
            _sessions.discard(session)
            _end_proton(watching)

    return finalize


def end_all_sessions(original: Callable[..., Any], watching: _Watching) -> Callable[..., Any]:
    def finalize_all(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            _sessions.clear()
            _end_proton(watching)

    return finalize_all


def _end_proton(watching: _Watching) -> None:
    """It has the subscription until all its sessions are over."""
    if not _sessions:
        _ends(PROTON, watching)


@functools.cache
def _say_that_it_came_too_late() -> None:
    logger.warning("Triton's Proton cannot start: host syncs were counted before it was imported; import "
                   "triton.profiler at the top of the program, or set GRADVANE_SYNC=off")


PROTONS = {"start": start_session, "finalize": end_session, "finalize_all": end_all_sessions}


def when_proton_comes(then: Callable[[Any], object]) -> None:
    """Calls `then` with its functions once they have been imported, if they ever are."""

    def found() -> None:
        functions = getattr(sys.modules.get(LIBPROTON), "proton", None)
        if functions is not None and all(hasattr(functions, name) for name in PROTONS):
            then(functions)

    _imports.when_imported(LIBPROTON, found)


def _or_none(end: Callable[[], object], original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls the original; a profiler that it does not start is none."""
    try:
        return original(*args, **kwargs)
    except BaseException:
        end()
        raise
