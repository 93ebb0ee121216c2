"""Programs in the background that are gone when the block ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Program:
    """A program in a session of its own, so that Ctrl-C at the terminal reaches only the one who started it."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path,
                 environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        with open(log, "ab") as output:
            self._process = subprocess.Popen([str(part) for part in command], stdout=output,
                                             stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                             env=environment, start_new_session=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def fate(self) -> str:
        status = self._process.poll()
        return "is alive" if status is None else f"ended with status {status}"

    def kill(self) -> None:
        """By SIGKILL, as the memory killer does."""
        self._process.kill()
        self._process.wait()

    def send(self, which: int) -> None:
        if self.is_alive():
            self._process.send_signal(which)

    def stop(self, with_signal: int = signal.SIGTERM, seconds: float = 10) -> None:
        self.send(with_signal)
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()


def wait_for(condition: Callable[[], object], what: str, seconds: float, program: Program | None = None) -> None:
    """Until the condition holds. Faults of what is not there yet are not faults."""
    until = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except (OSError, ValueError, KeyError, IndexError):
            pass
        dead = program is not None and not program.is_alive()
        if dead or time.monotonic() > until:
            said = f"; {program.name} {program.fate()} and said: {program.said()}" if program is not None else ""
            raise TimeoutError(f"waited for {what} in vain{said}")
        time.sleep(0.1)
