"""Runs a program as a shell would: signals reach it, and how it ended is told."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from typing import NoReturn

# Of job control, ignored unless caught, or (SIGPIPE, SIGXFSZ) of a write of ours that Python reports itself.
_KEPT = "KILL STOP CHLD CONT TSTP TTIN TTOU URG WINCH PIPE XFSZ".split()
_FORWARDED = signal.valid_signals() - {signal.Signals[f"SIG{name}"] for name in _KEPT}
_SIGNALS = {*_FORWARDED, signal.SIGCHLD}
# Set before our start by whoever wanted the program to have so much time: we got them in its place.
_TIMERS = {signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU}


def run(command: list[str], environment: dict[str, str], *, stdout: int | None) -> int:
    """Its exit status; a negative one is the signal that it died by. Raises OSError where it cannot start.

    The caller's thread is the only one of this process.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody learns how a child ended
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        child = subprocess.Popen(
            command,
            env=environment,
            stdout=stdout,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
        )
        while child.poll() is None:
            got = signal.sigwaitinfo(_SIGNALS)
            # What the terminal sends, it has sent to the child as well.
            if got.si_signo in _FORWARDED and (got.si_code <= 0 or got.si_signo in _TIMERS):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, got.si_signo)
        return child.returncode
    finally:
        while signal.sigtimedwait(_SIGNALS, 0) is not None:  # what came for a child that is gone
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of the real-time ones few have names
        return f"signal {number}"


def die_by(number: int) -> NoReturn:
    """As the child died, so that whoever started us sees what it would have seen."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # one core is enough
    with contextlib.suppress(OSError):  # SIGKILL can be given no other meaning
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    os._exit(128 + number)
