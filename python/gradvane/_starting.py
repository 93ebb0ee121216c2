"""Starts the agent of a process that does not know of it, at its first backward pass or optimizer step."""

from __future__ import annotations

import contextlib
from typing import Any

from gradvane import _agent, _autostart, _functions
from gradvane._log import logger
from gradvane._watch import hooks


class _Nobody:
    """Takes a Watcher's events where there is none, and those of its parts: they come to nothing."""

    def clipping(self, params: list[Any], max_norm: float | None) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def __getattr__(self, name: str) -> _Nobody:
        return self

    def __call__(self, *_: object) -> None:
        pass


class _Waiting:
    """Stands in for a Watcher until something trains: the first event starts the agent and goes on to it."""

    _profilers = 0
    """those that the injected library has given way to"""
    faults = 0
    phases = _Nobody()
    """Loading data and saving train nothing."""

    def __getattr__(self, name: str) -> Any:
        current: Any = hooks.current()
        if current is self:
            start()
            current = hooks.current()
        return getattr(_Nobody() if current is None or current is self else current, name)

    def optimizer_clears(self, optimizer: Any) -> None:
        """Trains nothing."""

    def module_clears(self, module: Any) -> None:
        """Trains nothing."""

    def mode_changes(self, module: Any) -> None:
        """Trains nothing."""

    def profiler_begins(self, name: str) -> None:
        """Trains nothing, but an injected library may count host syncs already, and has to give way. An agent that
        comes later learns of the profiler from hooks.install()."""
        from gradvane._loading import native

        with contextlib.suppress(Exception):  # this torch cannot be watched: a line reports it when training begins
            if native().profiler_begins(name):
                self._profilers += 1

    def profiler_ended(self) -> None:
        """One that the injected library has given way to."""
        from gradvane._loading import native

        if self._profilers:
            self._profilers -= 1
            native().profiler_ended()

    def forget_profilers(self) -> None:
        """No one sees their end from now on."""
        while self._profilers:
            self.profiler_ended()


def install() -> None:
    """Hooks only: whether anything will train here is not known yet."""
    if hooks.current() is None:
        hooks.install(_Waiting())  # type: ignore[arg-type]


def _attach() -> None:
    """A policy that cannot act here leaves the run watched. The command line is the strongest source of options, and the last
    one of two counts."""
    try:
        _functions.attach()
    except ValueError as error:
        given = list(_agent.command_line)
        _agent.command_line.extend(["on_nonfinite=watch", "on_divergence=watch"])
        try:
            _functions.attach()
        except Exception:
            _agent.command_line[:] = given
            raise error from None
        logger.warning("no policy acts in this run: %s", error)


def start() -> bool:
    """True where an agent is live. One line says why where it is not, and the hooks go."""
    waiting = hooks.current()
    if _agent.live() is not None:
        return True
    try:
        _attach()
    except Exception as error:
        if waiting is not None:
            if isinstance(waiting, _Waiting):
                waiting.forget_profilers()
            hooks.uninstall(waiting)
        _autostart.note_refused()
        logger.warning("this run is not watched: %s", error)
        return False
    return True
