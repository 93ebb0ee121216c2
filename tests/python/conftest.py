"""A watched training in the test's own process, read back through its step log."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))
import running

sys.path[:0] = [str(running.PACKAGE), str(running.pythons.QUICK_TORCH)]

import quick  # noqa: E402

quick.install()

import gradvane  # noqa: E402
from gradvane import _agent  # noqa: E402

# Torch is imported where it is used: most of the files here only start programs.

for name in [name for name in os.environ if name.startswith("GRADVANE") and not name.endswith("_DIR")]:
    os.environ.pop(name)


class Watching:
    """attach() with a step log, and what stands in it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "steps.jsonl"
        self._folder = folder
        self.agent: gradvane.Agent | None = None

    def __call__(self, *what: object, **options: object) -> gradvane.Agent:
        options = {"port": -1, "weight_every": 0, "step_log": self._log, "run_dir": self._folder / "run", **options}
        self.agent = gradvane.attach(*what, **options)  # type: ignore[arg-type]
        return self.agent

    def steps(self) -> list[dict]:
        assert self.agent is not None
        self.agent.detach()
        assert self.agent._watcher.faults == 0
        return running.steps_in(self._log)


@pytest.fixture
def watching(tmp_path: Path):
    import torch

    torch.manual_seed(0)
    yield Watching(tmp_path)
    if _agent.live() is not None:
        _agent.live().detach()


def reference_norm(params) -> float:
    """In fp64, one by one."""
    import torch

    squares = [p.grad.double().pow(2).sum() for p in params if p.grad is not None]
    return float(torch.stack(squares).sum().sqrt())
