"""What the commands over recordings share: the native reader, and how its errors are told."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

from gradvane.cli.telling import complain


def reader() -> ModuleType:
    """Raises ImportError where the package was installed without its native parts."""
    return importlib.import_module("gradvane._recording")


def told(command: str, act: Callable[[ModuleType], int]) -> int:
    """What `act` returns; where something is wrong, a sentence on the standard error and exit status 2."""
    try:
        native = reader()
    except ImportError as error:
        return complain(command, f"the part that reads recordings cannot be loaded ({error}); install gradvane again")
    try:
        return act(native)
    except (native.RecordingError, RuntimeError) as error:
        return complain(command, str(error))
