"""Watches a process that does not know of Gradvane: waits for torch to be imported, installs the hooks, and
starts the agent when something begins to train. A process that only loads data never starts one.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types
    from collections.abc import Sequence

OFF = ("off", "false", "no", "0")

logger = logging.getLogger("gradvane")
_failure: str | None = None
_is_armed = False


def arm(run: str, options: dict[str, str], *, is_quiet: bool) -> None:
    """From now on the first training that happens in this process is watched, as a run called `run` where
    nothing else names it; `options` outdo all others."""
    global _is_armed
    if _is_armed:
        return
    _is_armed = True
    from gradvane import _agent

    _agent.default_run = run
    _agent.command_line = [f"{key}={value}" for key, value in options.items()]
    _say_on_standard_error(is_quiet)
    _arm_children(run, options, is_quiet)
    atexit.register(_end)  # before the script registers any of its own: so ours comes last
    if "torch" in sys.modules:
        _torch_is_there()
    else:
        sys.meta_path.insert(0, _WaitForTorch())


def start_now() -> bool:
    """Starts the agent before anything trains; says why if that fails."""
    import torch  # noqa: F401  (its import installs the hooks)

    from gradvane import _starting

    return _starting.start()


def note_failure(why: str) -> None:
    global _failure
    _failure = why


def _end() -> None:
    from gradvane import _agent

    agent = _agent.live()
    if agent is None:
        return
    if _failure is None:
        agent.detach()
    else:
        agent.fail(_failure)


def _torch_is_there() -> None:
    try:
        from gradvane import _starting

        _starting.install()
    except Exception as error:
        logger.warning("this run is not watched: %s", error)


class _WaitForTorch(importlib.abc.MetaPathFinder):
    """Finds nothing itself: lets the others find torch, and is told when it has been imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                break
        else:
            return None
        loader: Any = spec.loader
        if loader is None or not hasattr(loader, "__dict__"):
            return spec

        def exec_module(module: types.ModuleType) -> None:
            del loader.exec_module  # the loader is as it was
            loader.exec_module(module)
            _torch_is_there()

        loader.exec_module = exec_module
        return spec


def _say_on_standard_error(is_quiet: bool) -> None:
    """Our own lines, and nowhere else: the script's logging is left alone."""
    handler = logging.NullHandler() if is_quiet else logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("gradvane: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _Arm:
    """Travels to a spawned child with the data it is prepared with, and arms it while that is unpickled.
    Where the child has no gradvane, nothing happens."""

    def __init__(self, run: str, options: dict[str, str], is_quiet: bool) -> None:
        self._call = f"arm({run!r}, {options!r}, is_quiet={is_quiet!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        code = f"try:\n  from gradvane import _autostart\n  _autostart.{self._call}\nexcept Exception: pass"
        return exec, (code,)


def _arm_children(run: str, options: dict[str, str], is_quiet: bool) -> None:
    """Children that multiprocessing spawns and that train get an agent each."""
    from multiprocessing import spawn

    original = spawn.get_preparation_data

    def get_preparation_data(*args: Any, **kwargs: Any) -> dict[str, Any]:
        data = original(*args, **kwargs)
        data["gradvane"] = _Arm(run, options, is_quiet)
        return data

    spawn.get_preparation_data = get_preparation_data  # type: ignore[assignment]
