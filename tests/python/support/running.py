"""Runs scripts in processes of their own, plain or watched, and reads what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SCRIPTS = TESTS / "scripts"
QUICK_TORCH = Path(__file__).with_name("quick_torch")
PACKAGE = Path(os.environ.get("GRADVANE_BUILD_DIR", TESTS.parents[1] / "build" / "release")) / "python"


def environment(**extra: str) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GRADVANE_")}
    paths = [str(PACKAGE), str(QUICK_TORCH), env.get("PYTHONPATH", "")]
    env.update(PYTHONPATH=os.pathsep.join(paths).rstrip(os.pathsep),
               OMP_NUM_THREADS="1", GRADVANE_PORT="0", PYTHONDONTWRITEBYTECODE="1")
    env.update(extra)
    return env


def python(*arguments: object, cwd: Path, check: bool = True, timeout: float = 240,
           **extra: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *map(str, arguments)], cwd=cwd, env=environment(**extra),
                          capture_output=True, text=True, timeout=timeout)
    if check:
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def watched(script: object, *arguments: object, cwd: Path, options: tuple[str, ...] = (),
            check: bool = True, **extra: str) -> tuple[list[dict], subprocess.CompletedProcess[str]]:
    """The step log of `gradvane run`, and how it went."""
    log = cwd / "steps.jsonl"
    for old in cwd.glob("steps*.jsonl"):
        old.unlink()
    done = python("-m", "gradvane", "run", "--step-log", log, "--run-dir", cwd / "run", *options, script,
                  *arguments, cwd=cwd, check=check, **extra)
    return steps_in(log), done


def steps_in(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def write(folder: Path, source: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(source))
    return path


def run_source(folder: Path, source: str, **how: object) -> list[dict]:
    """The step log of a script given as text, watched by `gradvane run`."""
    return watched(write(folder, source), cwd=folder, **how)[0]  # type: ignore[arg-type]


def both(folder: Path, source: str, *arguments: object, module: bool = False,
         **how: str) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """The same script under python and under gradvane run."""
    script = write(folder, source)
    target: list[object] = ["-m", "train"] if module else [script]
    plain = python(*target, *arguments, cwd=folder, check=False, **how)
    ours = python("-m", "gradvane", "run", "--quiet", *target, *arguments, cwd=folder, check=False, **how)
    return plain, ours


def alike(plain: subprocess.CompletedProcess[str], ours: subprocess.CompletedProcess[str]) -> None:
    assert ours.returncode == plain.returncode
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr
