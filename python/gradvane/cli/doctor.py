"""gradvane doctor: whether this installation works here, and what to change if it does not."""

from __future__ import annotations

import argparse
import errno
import importlib.util
import os
import platform
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from gradvane._autostart import OFF
from gradvane._errors import GradvaneError, described
from gradvane.cli import injection
from gradvane.cli.agent_api import plain
from gradvane.cli.live_runs import LiveRun, live_runs
from gradvane.cli.telling import tell

PROBLEM = 1
_PORT = 9464


class Finding(NamedTuple):
    grade: str
    """ok, warning or problem"""
    text: str
    remedy: str = ""


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog="gradvane doctor",
        description="Checks this installation: torch, the native part, CUDA, CUPTI, the port, the address, the run directory, "
                    "and whether a live run was scraped.",
        epilog="Exit status: 0, or 1 if there is a problem.",
        allow_abbrev=False,
    )


def main(arguments: list[str]) -> int:
    parser().parse_args(arguments)
    has_problem = False
    for check in CHECKS:
        try:
            findings = list(check())
        except Exception as error:  # a check that failed is a finding too
            findings = [Finding("warning", f"{check.__name__.strip('_')} could not be checked: {described(error)}")]
        for finding in findings:
            has_problem |= finding.grade == "problem"
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            tell(plain(f"{finding.grade:<8} {finding.text}{remedy}"))
    return PROBLEM if has_problem else 0


def _python() -> Iterator[Finding]:
    try:
        version = metadata.version("gradvane")
    except metadata.PackageNotFoundError:
        version = "of a build tree"
    yield Finding("ok", f"gradvane {version}, Python {platform.python_version()}, {sys.executable}")
    if os.environ.get("GRADVANE", "").lower() in OFF:
        yield Finding("warning", f"GRADVANE={os.environ['GRADVANE']} switches Gradvane off", "unset it")


def _torch() -> Iterator[Finding]:
    from gradvane._loading import OLDEST_TORCH, native, release

    oldest = ".".join(map(str, OLDEST_TORCH))
    if importlib.util.find_spec("torch") is None:
        yield Finding("problem", "there is no torch in this environment", f"install torch {oldest} or newer; replay, diff, "
                      "status and top need none")
        return
    import torch

    if release(torch.__version__) < OLDEST_TORCH:
        yield Finding("problem", f"torch {torch.__version__} is too old", f"install torch {oldest} or newer")
        return
    yield Finding("ok", f"torch {torch.__version__} is supported")
    try:
        native()
    except GradvaneError as error:
        yield Finding("problem", f"the native part: {error}", "install gradvane again next to this torch (docs/install.md)")
        return
    yield Finding("ok", "the native part loads")


def _cuda() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    built = injection.cuda_major()
    if not torch.cuda.is_available():
        yield Finding("ok", "torch sees no CUDA device, so there is nothing to read on one")
    elif not built:
        yield Finding("problem", "torch sees a CUDA device, and this package cannot read tensors on one",
                      "build it with a CUDA toolkit (docs/install.md)")
    elif (driver := _driver_version()) and driver // 1000 < int(built):
        yield Finding("problem", f"the driver is for CUDA {driver // 1000}.{driver % 1000 // 10}, and this package has the "
                      f"runtime of CUDA {built}: tensors on CUDA devices are not read",
                      "install a newer driver, or build the package with an older toolkit (docs/install.md)")
    else:
        yield Finding("ok", f"tensors on CUDA devices are read (CUDA {built}): {torch.cuda.get_device_name(0)}")


def _driver_version() -> int:
    """13000 for CUDA 13.0; 0 if torch does not say."""
    import torch

    ask = getattr(torch._C, "_cuda_getDriverVersion", None)
    return 0 if ask is None else int(ask())


def _cupti() -> Iterator[Finding]:
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    if not torch.cuda.is_available():
        return
    if injection.loader_finds_one(dict(os.environ)) or injection.library_for([sys.executable], dict(os.environ)):
        yield Finding("ok", "CUPTI is found, so host syncs can be counted")
    else:
        yield Finding("warning", "no libcupti is found, so host syncs may not be counted",
                      "install nvidia-cuda-cupti, or set GRADVANE_SYNC_LIBRARY to a libcupti")


def _endpoint() -> Iterator[Finding]:
    text = os.environ.get("GRADVANE_PORT", str(_PORT))
    address = os.environ.get("GRADVANE_ADDRESS", "127.0.0.1")
    if not text.lstrip("-").isdecimal() or not -1 <= int(text) <= 65535:
        yield Finding("problem", f"GRADVANE_PORT={text} is not allowed", "set a number from -1 to 65535, or unset it")
        return
    if int(text) == -1:
        yield Finding("warning", "GRADVANE_PORT=-1: runs have no page and no metrics", "unset it to have them")
        return
    if address.startswith("unix:"):
        yield _unix_socket(address)
        return
    host = "127.0.0.1" if address == "localhost" else address
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(text)))
        yield Finding("ok", f"port {text} is free" if int(text) else "each run takes any free port")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            yield Finding("warning", f"port {text} is taken{_by_whom(int(text))}: the next run takes the next free one",
                          "let Prometheus find runs with gradvane sd, or set GRADVANE_PORT")
        else:
            yield Finding("problem", f"GRADVANE_ADDRESS={address}, port {text}: {error.strerror or error}",
                          "set an address of this machine, and a port that you may use")
            return
    if host.startswith("127.") or host == "::1":
        yield Finding("ok", f"the address {address} can be reached from this machine only; docs/prometheus.md shows how others can reach it")
    elif os.environ.get("GRADVANE_TOKEN"):
        yield Finding("ok", f"the address {address} can be reached by others, and asks for a token")
    elif os.environ.get("GRADVANE_INSECURE", "").lower() in ("on", "1", "true", "yes"):
        yield Finding("warning", f"the address {address} can be reached by others, and asks for no token",
                      "do this only on a network that you trust")
    else:
        yield Finding("problem", f"the address {address} can be reached by others, and no token is set: runs refuse to start their endpoint",
                      "set GRADVANE_TOKEN to auto or to a text of your own")


def _unix_socket(address: str) -> Finding:
    path = address.removeprefix("unix:")
    folder = os.path.dirname(path)
    if not os.path.isabs(path) or ":" in path or len(os.fsencode(path)) > 100:
        return Finding("problem", f"GRADVANE_ADDRESS={address} is not allowed",
                       "set unix: and an absolute path of at most 100 bytes, without a colon")
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        return Finding("problem", f"GRADVANE_ADDRESS={address}: {folder} is no directory that you may write to",
                       "make it, or set another path")
    return Finding("ok", f"runs listen on the unix socket {path}, which this user alone can open")


def _by_whom(port: int) -> str:
    names = [entry.run for entry in live_runs() if entry.url.endswith(f":{port}")]
    return f" by the run {names[0]}" if names else ""


def _run_directory() -> Iterator[Finding]:
    named = os.environ.get("GRADVANE_RUN_DIR")
    path = Path(named or Path(os.environ.get("TMPDIR") or "/tmp") / f"gradvane-{os.geteuid()}")
    remedy = "name another directory with GRADVANE_RUN_DIR" if named else "remove it, or set TMPDIR or GRADVANE_RUN_DIR"
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield Finding("problem" if named else "warning", f"run directory {path}: {there} cannot be written to", remedy)
        return
    status = there.stat() if named else there.lstat()
    is_private = status.st_uid == os.geteuid() and not status.st_mode & 0o022 and stat.S_ISDIR(status.st_mode)
    if there == path and not named and not is_private:
        yield Finding("warning", f"run directory {path} does not belong to you alone, so runs use another one", remedy)
        return
    free = os.statvfs(there).f_bavail * os.statvfs(there).f_frsize
    if free < 64 << 20:
        yield Finding("warning", f"run directory {path}: {free >> 20} MiB are free, and a run may write 32 MiB", remedy)
        return
    yield Finding("ok", f"run directory {path} can be written to")


def _scrapes() -> Iterator[Finding]:
    entries = live_runs()
    if not entries:
        yield Finding("ok", "no run is live on this machine, so there is nothing to scrape")
    for entry in entries:
        yield _scraped(entry)


def _scraped(entry: LiveRun) -> Finding:
    name = f"run {entry.run}, rank {entry.rank} at {entry.url}"
    if entry.status is None:
        return Finding("warning", f"{name} is live and does not answer", "see whether its process hangs")
    count = (entry.status.get("agent") or {}).get("scrapes", 0)
    if not count:
        return Finding("warning", f"{name} was never scraped", "add it to Prometheus (docs/prometheus.md)")
    return Finding("ok", f"{name} was scraped {count:,} time{'' if count == 1 else 's'}")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python, _torch, _cuda, _cupti, _endpoint, _run_directory, _scrapes,
)
