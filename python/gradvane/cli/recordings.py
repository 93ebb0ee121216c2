"""What the commands over recordings share: the native reader, and how its errors are told."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType

from gradvane.cli.agent_api import plain

CANNOT_READ = 2


def reader() -> ModuleType:
    """Raises ImportError where the package was installed without its native parts."""
    return importlib.import_module("gradvane._recording")


def told(command: str, act: Callable[[ModuleType], int]) -> int:
    """What `act` returns; where something is wrong, a sentence on the standard error and exit status 2."""
    try:
        native = reader()
    except ImportError as error:
        return _say(command, f"the part that reads recordings cannot be loaded ({error}); install gradvane again")
    try:
        return act(native)
    except BrokenPipeError:  # nobody reads on
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115
        return 0
    except (native.RecordingError, RuntimeError) as error:
        return _say(command, str(error))


def write(text: str) -> None:
    """With a line feed at its end, and at once."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


def _say(command: str, what: str) -> int:
    sys.stderr.write(f"gradvane {command}: {plain(what)}\n")
    return CANNOT_READ
