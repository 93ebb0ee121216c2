"""Runs scripts in processes of their own, plain or watched, and reads what came of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS.parent / "warm"))

import pythons  # noqa: E402

SCRIPTS = TESTS / "scripts"
PACKAGE = Path(os.environ.get("GRADVANE_BUILD_DIR", TESTS.parents[1] / "build" / "release")) / "python"


def environment(**extra: str) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GRADVANE_")}
    paths = [str(PACKAGE), str(pythons.QUICK_TORCH), env.get("PYTHONPATH", "")]
    env.update(PYTHONPATH=os.pathsep.join(paths).rstrip(os.pathsep),
               OMP_NUM_THREADS="1", GRADVANE_PORT="0", PYTHONDONTWRITEBYTECODE="1")
    env.update(extra)
    return env


def start(*arguments: object, cwd: Path, **extra: str) -> subprocess.Popen[str]:
    """A program, with pipes to its streams, that goes on while the test does."""
    words = [str(argument) for argument in arguments]
    is_warm = pythons.is_fit(words, cwd)
    return (pythons.Process if is_warm else subprocess.Popen)(
        words if is_warm else [sys.executable, *words], cwd=cwd, env=environment(**extra), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


HUGGING_FACE, LIGHTNING = ("transformers.trainer",), ("lightning.pytorch",)


def python(*arguments: object, cwd: Path, check: bool = True, timeout: float = 240, is_cold: bool = False,
           modules: tuple[str, ...] = (), **extra: str) -> subprocess.CompletedProcess[str]:
    """`is_cold`: by the interpreter itself, where its start is the point. `modules`: what it has already besides torch, if it
    is not cold."""
    words, env = [str(argument) for argument in arguments], environment(**extra)
    if not is_cold and pythons.is_fit(words, cwd):
        done = pythons.run(words, cwd, env, timeout, modules)
    else:
        done = subprocess.run([sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)
    if check:
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def ranks(count: int, *arguments: object, cwd: Path, check: bool = True, timeout: float = 240, modules: tuple[str, ...] = (),
          **extra: str) -> subprocess.CompletedProcess[str]:
    """A program once for each rank, with the variables that torchrun gives it. Where torchrun itself is not the point:
    it and each of its ranks import torch, for ten seconds of a processor in all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    of_all = environment(WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                         GROUP_RANK="0", TORCHELASTIC_RUN_ID=f"run{port}", TORCHELASTIC_RESTART_COUNT="0", **extra)
    done = pythons.run_together([{**of_all, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)],
                                [str(argument) for argument in arguments], cwd, timeout, pythons.SHARDED + modules)
    if check:
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def watched(script: object, *arguments: object, cwd: Path, options: tuple[str, ...] = (),
            check: bool = True, is_cold: bool = False, modules: tuple[str, ...] = (),
            **extra: str) -> tuple[list[dict], subprocess.CompletedProcess[str]]:
    """The step log of `gradvane run`, and how it went."""
    log = cwd / "steps.jsonl"
    for old in cwd.glob("steps*.jsonl"):
        old.unlink()
    done = python("-m", "gradvane", "run", "--step-log", log, "--run-dir", cwd / "run", *options, script,
                  *arguments, cwd=cwd, check=check, is_cold=is_cold, modules=modules, **extra)
    return steps_in(log), done


def steps_in(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


TRAINS = """
    import sys, torch
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    print("trained", flush=True)
"""
TRAINS_AND_WAITS = TRAINS + """\
    sys.stdin.readline()
"""
"""three steps, a line on the standard output, and then until the standard input ends"""


KEEPS_LOG = """
    import logging
    lines = []
    logger = logging.getLogger("gradvane")
    logger.setLevel(logging.INFO)
    logger.addHandler(type("Keeps", (logging.Handler,), {"emit": lambda self, r: lines.append(r.getMessage())})())
"""
"""part of a script: from here on `lines` has what the agent logs"""


def waiting(folder: Path, *options: str, **extra: str) -> subprocess.Popen[str]:
    """`gradvane run` of TRAINS_AND_WAITS, with `folder` as its temporary directory. It says "trained" once it waits."""
    script = folder / "train.py"
    if not script.exists():
        write(folder, TRAINS_AND_WAITS)
    return start("-m", "gradvane", "run", "--linger-seconds", "0", *options, script, cwd=folder, TMPDIR=str(folder), **extra)


def write(folder: Path, source: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(source))
    return path


def replace(path: Path, text: str) -> None:
    """As a whole: a reader sees the old file or the new one."""
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


def run_source(folder: Path, source: str, **how: object) -> list[dict]:
    """The step log of a script given as text, watched by `gradvane run`."""
    return watched(write(folder, source), cwd=folder, **how)[0]  # type: ignore[arg-type]


def both(folder: Path, source: str, *arguments: object, module: bool = False, is_cold: bool = False,
         **how: str) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """The same script under python and under gradvane run."""
    script = write(folder, source)
    target: list[object] = ["-m", "train"] if module else [script]
    plain = python(*target, *arguments, cwd=folder, check=False, is_cold=is_cold, **how)
    ours = python("-m", "gradvane", "run", "--quiet", *target, *arguments, cwd=folder, check=False, is_cold=is_cold, **how)
    return plain, ours


def alike(plain: subprocess.CompletedProcess[str], ours: subprocess.CompletedProcess[str]) -> None:
    assert ours.returncode == plain.returncode
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr
