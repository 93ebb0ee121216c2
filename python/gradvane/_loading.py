"""Loads the native part, or says in one sentence why that cannot be."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import TYPE_CHECKING

from gradvane._errors import GradvaneError

if TYPE_CHECKING:
    from types import ModuleType

OLDEST_TORCH = (2, 9)


def release(version: str) -> tuple[int, int]:
    """(2, 11) of "2.11.0+cu130"."""
    major, minor = version.split("+")[0].split(".")[:2]
    return int(major), int("".join(c for c in minor if c.isdigit()))


@functools.cache
def native() -> ModuleType:
    """gradvane._native. Raises GradvaneError."""
    if importlib.util.find_spec("torch") is None:
        raise GradvaneError("gradvane needs torch 2.9 or newer, and there is no torch in this environment")
    import torch

    if release(torch.__version__) < OLDEST_TORCH:
        raise GradvaneError(f"gradvane needs torch 2.9 or newer; this is torch {torch.__version__}")
    try:
        return importlib.import_module("gradvane._native")
    except ImportError as error:
        if importlib.util.find_spec("gradvane._native") is None:
            raise GradvaneError("gradvane's native part is missing: install it with pip install .") from None
        raise GradvaneError(f"gradvane's native part cannot be loaded: {error}") from error
    except RuntimeError as error:
        raise GradvaneError(str(error)) from None
