"""Loads the native part beside the torch it was built for, or says in one sentence why that cannot be."""

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


def refusal(built_for: str, built_cuda: str, installed: str, installed_cuda: str | None) -> str | None:
    """Why the native part, built for one torch, cannot be loaded beside another; None where it can.

    `built_cuda` is the major version of CUDA it was built with, empty for a build without.
    """
    if release(installed) < OLDEST_TORCH:
        return f"gradvane needs torch 2.9 or newer; this is torch {installed}"
    rebuild = "install gradvane again in this environment, from source: pip install --force-reinstall --no-deps ."
    if release(built_for) != release(installed):
        return f"gradvane was built for torch {built_for}, and this is torch {installed}; {rebuild}"
    cuda = (installed_cuda or "").split(".")[0]
    if built_cuda and built_cuda != cuda:
        found = f"for CUDA {cuda}" if cuda else "without CUDA"
        return f"gradvane was built for a torch with CUDA {built_cuda}, and this one is {found}; {rebuild}"
    return None


@functools.cache
def native() -> ModuleType:
    """gradvane._native. Raises GradvaneError."""
    if importlib.util.find_spec("torch") is None:
        raise GradvaneError("gradvane needs torch 2.9 or newer, and there is no torch in this environment")
    import torch

    try:
        build = importlib.import_module("gradvane._build")
    except ImportError:
        raise GradvaneError("gradvane's native part is missing: install it with pip install .") from None
    why = refusal(build.TORCH_VERSION, build.CUDA_MAJOR, torch.__version__, torch.version.cuda)
    if why:
        raise GradvaneError(why)
    try:
        return importlib.import_module("gradvane._native")
    except ImportError as error:
        raise GradvaneError(f"gradvane's native part cannot be loaded: {error}") from error
