"""Starts python programs: from a process that has torch already where they cannot tell, else as ever."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SERVER = Path(__file__).with_name("server.py")
QUICK_TORCH = Path(__file__).with_name("quick_torch")
"""to be on PYTHONPATH"""
SOURCES = (SERVER, *sorted(QUICK_TORCH.glob("*.py")))
SHARDED = ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel", "torch.distributed.device_mesh")
"""modules of programs of several ranks: each rank would import them, for two seconds of a processor"""
AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "GOMP_", "MALLOC_", "GLIBC_", "CUDA_", "WHOLE_TORCH",
            "LC_", "LANG", "TORCH_", "ASAN_", "TSAN_")
"""How the names of variables begin that python, torch or the C library read when they start: each set has a server."""


class Process(subprocess.Popen):
    """A Popen of a process whose parent is the server."""

    def __init__(self, words: list[str], *, modules: tuple[str, ...] = (), whole_end: bool = False, **how: object) -> None:
        """`words`: without the interpreter. `modules`: what the server has imported besides torch. `whole_end`: also the
        destructors of torch's libraries. `how`: cwd, env, start_new_session and what is about streams, as Popen takes them."""
        self._modules, self._whole_end = modules, whole_end
        super().__init__(words, **how)  # type: ignore[call-overload]

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags,  # type: ignore[no-untyped-def]
                       shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid, umask,
                       start_new_session, *_):
        """What Popen does once it has its pipes. A number of -1 is that of our own stream."""
        request = {"words": args, "folder": str(cwd), "environment": env, "session": start_new_session, "whole_end": self._whole_end}
        streams = [ours if number == -1 else number for ours, number in enumerate((p2cread, c2pwrite, errwrite))]
        try:
            self._answers = ask(at_start(env), self._modules, request, streams)
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        self._lines = self._answers.makefile("r")
        self.pid = int(self._lines.readline())
        self._child_created = True

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        return self.returncode if self.returncode is not None or not self._has_answer(0) else self._wait(None)

    def _has_answer(self, seconds: float | None) -> bool:
        self._answers.settimeout(seconds)
        try:
            return bool(self._answers.recv(1, socket.MSG_PEEK | (socket.MSG_DONTWAIT if seconds == 0 else 0)))
        except (BlockingIOError, TimeoutError):
            return False
        finally:
            self._answers.settimeout(None)

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if not self._has_answer(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._lines.readline())
            self._lines.close()
            self._answers.close()
        return self.returncode


def search_path(*folders: Path | str) -> str:
    """PYTHONPATH for programs that find modules in these, and load torch without what only its compiler needs."""
    return os.pathsep.join([*map(str, folders), str(QUICK_TORCH)])


def at_start(environment: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in environment.items() if item[0].startswith(AT_START)))


def ask(variables: tuple[tuple[str, str], ...], modules: tuple[str, ...], request: dict, streams: list[int]) -> socket.socket:
    """Where the answers to a request come: the number of a process, and how it ended."""
    for _ in range(3):
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(OSError):
            socket.send_fds(server(variables, modules), [json.dumps(request).encode()], [*streams, theirs.fileno()])
        if ours.recv(1, socket.MSG_PEEK):
            return ours
        ours.close()
        server.cache_clear()  # the one that we knew had nothing to do for a while, and has ended
    raise RuntimeError(f"a Python that imports {('torch', *modules)} with {dict(variables)} does not answer")


@functools.cache
def server(variables: tuple[tuple[str, str], ...], modules: tuple[str, ...]) -> socket.socket:
    """A connection to the one for this set of variables that count when python starts, and of modules. All tests of a
    user share it. Who comes first starts it; it ends when it has had no connection for a while."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    if modules:
        kept["WHOLE_TORCH"] = "1"
    environment = {**kept, **dict(variables)}
    name = "\0gradvane-warm-" + hashlib.sha256(json.dumps(
        [os.geteuid(), sys.executable, *map(Path.read_text, SOURCES), sorted(environment.items()), modules]).encode()).hexdigest()
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, contextlib.suppress(OSError):
            listener.bind(name)  # refused if another has it
            listener.listen(64)
            subprocess.Popen([sys.executable, SERVER, str(listener.fileno()), *modules], env=environment, cwd="/",
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             pass_fds=[listener.fileno()], start_new_session=True)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(name)
        except ConnectionRefusedError:  # it has just ended, or has its name and does not listen yet
            connection.close()
            time.sleep(0.01)
            continue
        if user_of(connection) != os.geteuid():
            raise PermissionError(f"another user has the name of the server of warm Pythons: {name!r}")
        return connection


def user_of(connection: socket.socket) -> int:
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]


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
        processes = [Process(words, cwd=folder, env=environment, stdout=out, stderr=error, modules=modules)
                     for environment in environments]
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
