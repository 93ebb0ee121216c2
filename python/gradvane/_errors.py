"""What can go wrong before training runs, and how an exception is told."""

from __future__ import annotations

import functools
import signal
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradvane._records import Incident


class GradvaneError(RuntimeError):
    """Set-up failed. The message says what to change. Once training runs, only TrainingStopped is raised, where the
    user asked for it."""


class TrainingStopped(GradvaneError):
    """The policy `on_nonfinite` or `on_divergence` stops the training, at the end of a step that was left out: no bad
    value has reached the weights by it. optimizer.step() raises it, once for each such step. docs/governor.md."""

    def __init__(
        self, reason: str, *, incident: Incident | None = None, last_good_step: int | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        """one sentence, with the run step"""
        self.incident = incident
        """what it rests on; None where it has not been reported within a second"""
        self.last_good_step = last_good_step
        """run step; None where none is known"""

    def __reduce__(self) -> tuple[object, ...]:
        return _stopped, (self.reason, self.incident, self.last_good_step)


def _stopped(reason: str, incident: Incident | None, last_good_step: int | None) -> TrainingStopped:
    return TrainingStopped(reason, incident=incident, last_good_step=last_good_step)


_MOST = 1024
"""characters of an exception's text that a run's status, its alerts and its recordings show"""


def described(error: BaseException) -> str:
    """The exception in one text of bounded length. It goes to the run's status, and so to everyone who may read
    the endpoint."""
    kind = "stopped" if isinstance(error, TrainingStopped) else type(error).__name__
    said = text_of(error)
    return text_of(f"{kind}: {said}") if said else kind


def reason_of(error: BaseException) -> str:
    """Why a run ended, for its status. A trainer may turn Ctrl-C and SIGTERM into an exit status: Lightning leaves with
    1 after Ctrl-C, others with 128 and the signal's number."""
    if not isinstance(error, SystemExit):
        return described(error)
    code = error.code
    if code == 128 + signal.SIGINT or isinstance(error.__context__, KeyboardInterrupt):
        return "KeyboardInterrupt"
    if code == 128 + signal.SIGTERM:
        return "SIGTERM"
    return f"exit status {code}" if isinstance(code, int) else text_of(code) or "exit status 1"


def is_good_exit(error: BaseException) -> bool:
    """Whether the program that `error` ends has the exit status 0. Python prints anything but None and integers, an
    empty text too, and exits with 1."""
    return isinstance(error, SystemExit) and (error.code is None or (isinstance(error.code, int) and error.code == 0))


def text_of(value: object) -> str:
    """str() of bounded length. It raises nothing: what is wrong with `value` must not become another end of the
    program than its own."""
    try:
        text = str(value)
    except Exception:
        return ""
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"


def is_of_a_signal(error: BaseException) -> bool:
    """Whether a handler of signals has raised it: they run wherever the main thread is. It came in here by chance, and is
    for the program."""
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> types.CodeType | None:
    if not callable(handler):  # as SIG_DFL
        return None
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = getattr(type(handler), "__call__", None)
    return getattr(function, "__code__", None)
