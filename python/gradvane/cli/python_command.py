"""Knows a command that runs a Python script, and turns it into one that is watched by `gradvane run`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

_PYTHON = re.compile(r"python(3(\.\d+)?)?t?")
_WITH_VALUE = "WX"
_ALONE = "bBdEIOPqRsSuv"
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "gradvane")
"""modules that start or watch others themselves"""
_ASK = "import importlib.util as u, sys; sys.exit(u.find_spec('gradvane') is None or u.find_spec('gradvane._native') is None)"


def watched(command: list[str]) -> list[str] | None:
    """The same script under `gradvane run`; None where the command is no Python script, or its Python has no
    Gradvane that it could load."""
    if not command or not _PYTHON.fullmatch(os.path.basename(command[0])):
        return None
    split = _target_at(command)
    if split is None:
        return None
    options, target = command[1:split], command[split:]
    if not _has_gradvane(command[0], options):
        return None
    return [command[0], *options, "-m", "gradvane", "run", "--quiet", *_separate(target)]


def is_watched_already(command: list[str]) -> bool:
    """`gradvane run` itself, as a command or as a module."""
    if not command:
        return False
    if os.path.basename(command[0]) == "gradvane":
        return command[1:2] == ["run"]
    split = _target_at(command) if _PYTHON.fullmatch(os.path.basename(command[0])) else None
    return split is not None and _separate(command[split:])[:3] == ["-m", "gradvane", "run"]


def _target_at(command: list[str]) -> int | None:
    """Where the interpreter's own options end: at the script, or at -m. None: there is no script."""
    at = 1
    while at < len(command):
        word = command[at]
        if not word.startswith("-"):
            return at
        if word == "--check-hash-based-pycs":
            at += 2
            continue
        if word.startswith("--") or word == "-":
            return None
        for i, letter in enumerate(word[1:], 1):
            if letter == "m":  # "-um module" is left to Python: its letters are not taken apart
                return at if i == 1 and _module_of(command[at:]) else None
            if letter in _WITH_VALUE:
                at += not word[i + 1 :]
                break
            if letter not in _ALONE:  # -c, -i, -V, -h, -x
                return None
        at += 1
    return None


def _module_of(target: list[str]) -> str:
    words = _separate(target)
    return words[1] if len(words) > 1 else ""


def _separate(target: list[str]) -> list[str]:
    """-mmodule is -m module."""
    if target[:1] and target[0].startswith("-m") and len(target[0]) > 2:
        return ["-m", target[0][2:], *target[1:]]
    return target


def is_launcher(command: list[str]) -> bool:
    split = _target_at(command)
    return split is not None and command[split].startswith("-m") and _module_of(command[split:]) in _LAUNCHERS


def is_ours(program: str) -> bool:
    """Whether it is the interpreter that runs us, under whatever name."""
    found = shutil.which(program)
    if found is None or not sys.executable:
        return False
    # A virtual environment's interpreter is a link: the folder it lies in makes the difference.
    return os.path.realpath(os.path.dirname(found)) == os.path.realpath(os.path.dirname(sys.executable)) and (
        os.path.realpath(found) == os.path.realpath(sys.executable)
    )


def _has_gradvane(program: str, options: list[str]) -> bool:
    short = [option for option in options if option.startswith("-") and option[1:2] not in ("-", "W", "X")]
    if is_ours(program) and not any(set(option) & set("EIPsS") for option in short):
        return True
    try:
        asked = subprocess.run(
            [program, *options, "-c", _ASK], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
