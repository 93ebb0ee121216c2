"""Starts python programs: from a process that has torch already where they cannot tell, else as ever."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SERVER = Path(__file__).with_name("server.py")
QUICK_TORCH = Path(__file__).with_name("quick_torch")
"""to be on PYTHONPATH"""
AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "GOMP_", "MALLOC_", "GLIBC_", "CUDA_", "WHOLE_TORCH",
            "LC_", "LANG", "TORCH_", "ASAN_", "TSAN_")
"""How the names of variables begin that python, torch or the C library read when they start: each set has a server."""


class Process:
    """What subprocess.Popen gives, of a process whose parent is the server."""

    def __init__(self, words: list[str], folder: Path | str, environment: dict[str, str], streams: tuple[int, int, int],
                 session: bool = False, modules: tuple[str, ...] = (), whole_end: bool = False) -> None:
        """`modules`: what the server has imported besides torch. `whole_end`: also the destructors of torch's libraries."""
        self.args = words
        self.returncode: int | None = None
        self._answers, theirs = socket.socketpair()
        request = {"words": words, "folder": str(folder), "environment": environment, "session": session, "whole_end": whole_end}
        with theirs:
            socket.send_fds(server(at_start(environment), modules), [json.dumps(request).encode()], [*streams, theirs.fileno()])
        self._lines = self._answers.makefile("r")
        self.pid = int(self._lines.readline())

    def poll(self) -> int | None:
        if self.returncode is None and self._has_answer(0):
            self.wait()
        return self.returncode

    def _has_answer(self, seconds: float | None) -> bool:
        self._answers.settimeout(seconds)
        try:
            return bool(self._answers.recv(1, socket.MSG_PEEK | (socket.MSG_DONTWAIT if seconds == 0 else 0)))
        except (BlockingIOError, TimeoutError):
            return False
        finally:
            self._answers.settimeout(None)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._has_answer(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._lines.readline())
            self._lines.close()
            self._answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def at_start(environment: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in environment.items() if item[0].startswith(AT_START)))


@functools.cache
def server(variables: tuple[tuple[str, str], ...], modules: tuple[str, ...]) -> socket.socket:
    """One for each set of variables that count when python starts, and of modules."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    if modules:
        kept["WHOLE_TORCH"] = "1"
    with theirs:
        process = subprocess.Popen([sys.executable, SERVER, str(theirs.fileno()), *modules], env={**kept, **dict(variables)},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    atexit.register(lambda: (ours.close(), process.wait()))
    return ours


def is_fit(words: list[str], folder: Path | str) -> bool:
    """A script, or `gradvane run`. Other modules have a traceback with python's own lines in it."""
    if words[0] == "-m":
        return words[1:3] == ["gradvane", "run"]
    return words[0].endswith(".py") and (folder / Path(words[0])).is_file()


def run(words: list[str], folder: Path | str, environment: dict[str, str],
        timeout: float | None = None, modules: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """As subprocess.run(..., capture_output=True, text=True). `modules`: as for Process."""
    return run_together([environment], words, folder, timeout, modules)


def run_together(environments: list[dict[str, str]], words: list[str], folder: Path | str, timeout: float | None = None,
                 modules: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """One program, once in each environment, all at the same time, with what they print in one place. The status is
    that of the first one that failed; those that are not over in time are killed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        streams = (0, out.fileno(), error.fileno())
        processes = [Process(words, folder, environment, streams, modules=modules) for environment in environments]
        until = None if timeout is None else time.monotonic() + timeout
        try:
            found = [process.wait(None if until is None else max(0.0, until - time.monotonic())) for process in processes]
        except subprocess.TimeoutExpired:
            for process in processes:
                process.kill()
                process.wait()
            raise
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess(words, next((s for s in found if s), 0), out.read(), error.read())
