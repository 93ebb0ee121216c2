"""Memory of this machine that a process may still take, and memory that a device copies to without a stop."""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path

import torch
from torch import Tensor

_HEADROOM = 256 << 20
"""bytes that stay free for others"""
_PORTABLE = 1
"""cudaHostRegisterPortable"""


def available(root: Path = Path("/")) -> int | None:
    """Bytes, by the kernel's own estimate and the limits of this process's cgroups. None: not known here."""
    limits = [limit for limit in (_of_machine(root), *_of_cgroups(root)) if limit is not None]
    return min(limits) if limits else None


def refusal(needed: int, root: Path = Path("/")) -> str | None:
    """Why `needed` more bytes are not taken, as a sentence; None if they may be."""
    free = available(root)
    if free is None or needed + _HEADROOM <= free:
        return None
    return (f"two snapshots need {needed / 2**20:.0f} MiB of host memory, and {free / 2**20:.0f} MiB are available; "
            f"{_HEADROOM >> 20} MiB of them stay free. Give the job more memory, or switch snapshots off")


def allocate(size: int, pinned: bool) -> Tensor:
    """`size` bytes of zeros, committed by the kernel. Pinned ones are registered with CUDA at their exact size:
    torch's own allocator would round up to a power of two. Raises RuntimeError if CUDA refuses."""
    memory = torch.empty(size, dtype=torch.uint8)
    memory.zero_()
    if pinned and size > 0:
        runtime = torch.cuda.cudart()
        status = int(runtime.cudaHostRegister(memory.data_ptr(), size, _PORTABLE))  # type: ignore[attr-defined]
        if status != 0:
            raise RuntimeError(
                f"CUDA could not pin {size / 2**20:.0f} MiB of host memory (error {status}); raise the limit of "
                "locked memory (ulimit -l), or switch snapshots off")
        weakref.finalize(memory, _unpin, memory.data_ptr(), os.getpid()).atexit = False
    return memory


def _unpin(address: int, process: int) -> None:
    if os.getpid() == process:  # a forked child has no CUDA context
        torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[attr-defined]


def _of_machine(root: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _of_cgroups(root: Path) -> list[int]:
    """What each limit above this process leaves. Memory that only caches files counts as free."""
    left = []
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                left += _up_from(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                left += _up_from(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                 "memory.usage_in_bytes", "total_inactive_file")
    return left


def _up_from(mount: Path, path: str, limit: str, usage: str, cache: str) -> list[int]:
    left = []
    folder = mount / path.lstrip("/")
    while True:
        with contextlib.suppress(OSError, ValueError):
            most = int((folder / limit).read_text())  # "max" is no number: no limit
            used = int((folder / usage).read_text())
            left.append(max(0, most - used + _cached(folder, cache)))
        if folder == mount or mount not in folder.parents:
            return left
        folder = folder.parent


def _cached(folder: Path, key: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    return 0
