"""Programs with host syncs planted in known lines, over a CUDA and a CUPTI that are not there, and what
`gradvane syncs` makes of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import running

BUILD = running.PACKAGE.parent
FAKE = BUILD / "lib" / "libgradvane_fake_cuda.so"
DRIVER = BUILD / "fake_driver"
LIBRARY = BUILD / "lib" / "libgradvane_inject.so"
SCHEMA = json.loads((running.TESTS.parents[1] / "docs" / "api" / "syncs.schema.json").read_text())

CUDA = """
    import ctypes, os, sys
    if "FAKE_DRIVER" in os.environ:
        ctypes.CDLL("libcuda.so.1").cuInit(0)
    cuda = ctypes.CDLL(os.environ["FAKE_CUDA"])
"""
BEGIN = CUDA + """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def log_now_and_then(step):
        if step % 2 == 0:
            cuda.fake_item(400)  # seldom

    def train(steps):
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            cuda.fake_item(20000)  # always
            log_now_and_then(step)
            cuda.fake_pageable_copy(3000)  # copy
            optimizer.step()
"""
STEPS = 17
SELDOM = STEPS // 2 + 1
"""steps with the one that is not in all of them"""
TRAINING = BEGIN + f"""
    train({STEPS})
    print("trained", model.weight.sum().item())
"""
# Of which each step after the first makes so many; in order of the time they take.
PLANTED = [("always", "d2h_read", 1.0), ("copy", "async_copy_blocked", 1.0), ("seldom", "d2h_read", 0.5)]

ASK = """
    def ask(path, until):
        import time, urllib.request
        from gradvane import _agent
        for _ in range(600):
            text = urllib.request.urlopen(_agent.live().url + path, timeout=5).read().decode()
            if until(text):
                break
            time.sleep(0.1)
        return text
"""


def ways(way: str) -> dict[str, str]:
    """The environment in which a fake CUDA is counted: `injected` by the driver from its first call on,
    `agent` by an agent that does not wait for a driver."""
    env = {"FAKE_CUDA": str(FAKE), "GRADVANE_SYNC_LIBRARY": str(FAKE), "GRADVANE_RUN_DIR": "run",
           "GRADVANE_LINGER_SECONDS": "0"}
    if way == "injected":
        env.update(FAKE_DRIVER="1", LD_LIBRARY_PATH=os.pathsep.join(
            filter(None, [str(DRIVER), os.environ.get("LD_LIBRARY_PATH", "")])))
    elif way == "agent":
        env.update(GRADVANE_SYNC="require", GRADVANE_INJECT_LIBRARY="/nowhere/libgradvane_inject.so")
    return env


def syncs(*words: object, cwd: Path, way: str = "injected", check: bool = True,
          **extra: str) -> subprocess.CompletedProcess[str]:
    """`gradvane syncs WORDS`."""
    return running.python("-m", "gradvane", "syncs", *words, cwd=cwd, check=check, **{**ways(way), **extra})


def documents(done: subprocess.CompletedProcess[str]) -> list[dict]:
    """Of --json, each as its schema says."""
    found = json.loads(done.stdout)
    for document in found:
        jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return found


@dataclass
class Row:
    site: str
    kind: str
    calls: int
    per_step: float | None
    share: float


def rows(text: str) -> list[Row]:
    """Of the tables."""
    pattern = r"^  (\S+)(?: \S+)? +([a-z0-9_]+) +([\d,]+) +(?:([\d.]+) +)?[\d.]+ (?:us|ms|s) +(?:< )?([\d.]+) %"
    return [Row(site, kind, int(calls.replace(",", "")), float(per_step) if per_step else None, float(share))
            for site, kind, calls, per_step, share in re.findall(pattern, text, re.MULTILINE) if not site.isdigit()]


def line_of(script: Path, mark: str) -> int:
    return next(n for n, line in enumerate(script.read_text().splitlines(), 1) if line.endswith(f"# {mark}"))
