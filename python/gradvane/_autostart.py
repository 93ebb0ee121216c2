"""Watches a process that does not know of Gradvane: waits for torch to be imported, installs the hooks, and
starts the agent when something begins to train. A process that only loads data never starts one.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
from typing import Any

from gradvane import _imports

OFF = ("off", "false", "no", "0")

logger = logging.getLogger("gradvane")
_is_armed = False
_is_refused = False


def arm(run: str, options: dict[str, str], *, hides_lines: bool, is_child: bool = False) -> None:
    """From now on the first training that happens in this process is watched, as a run called `run` where
    nothing else names it; `options` outdo all others."""
    global _is_armed
    if _is_armed:
        return
    _is_armed = True
    from gradvane import _agent

    _agent.default_run = run
    _agent.command_line = [f"{key}={value}" for key, value in options.items()]
    _say_on_standard_error(hides_lines or is_quiet())
    if not is_child:
        _agent.on_nothing = _say_nothing
    atexit.register(_imports.stop_waiting)
    _agent.end_at_exit()  # before the script registers anything of its own there: so ours comes last
    # Not imported for the script: it would come before what the script does first, at the exit too.
    _imports.when_imported("multiprocessing.spawn", lambda: _arm_children(run, options, hides_lines))
    _imports.when_imported("torch", _torch_is_there)


def is_quiet() -> bool:
    """Whether the environment hides our lines."""
    return (os.environ.get("GRADVANE_QUIET") or "off").lower() not in OFF


def start_now() -> bool:
    """Starts the agent before anything trains; says why if that fails."""
    import torch  # noqa: F401  (its import installs the hooks)

    from gradvane import _starting

    return _starting.start()


def note_refused() -> None:
    """The agent cannot start, and a line has said why."""
    global _is_refused
    _is_refused = True


def note_failure(why: str) -> None:
    from gradvane import _agent

    _agent.failure = why


def _say_nothing() -> None:
    if _is_refused:
        return
    seen = "torch was never imported" if "torch" not in sys.modules else "no backward pass, no optimizer step"
    logger.info("nothing trained in this process: %s", seen)


def _torch_is_there() -> None:
    try:
        import multiprocessing.spawn  # noqa: F401  (torch has all of it but this; then nothing is waited for)

        from gradvane import _starting

        _starting.install()
    except Exception as error:
        note_refused()
        logger.warning("this run is not watched: %s", error)


def _say_on_standard_error(hides_lines: bool) -> None:
    """Our own lines, and nowhere else: the script's logging is left alone."""
    handler = logging.NullHandler() if hides_lines else logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("gradvane: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _Arm:
    """Travels to a spawned child with the data it is prepared with, and arms it while that is unpickled.
    Where the child has no gradvane, nothing happens."""

    def __init__(self, run: str, options: dict[str, str], hides_lines: bool) -> None:
        self._call = f"arm({run!r}, {options!r}, hides_lines={hides_lines!r}, is_child=True)"

    def __reduce__(self) -> tuple[Any, ...]:
        code = f"try:\n  from gradvane import _autostart\n  _autostart.{self._call}\nexcept Exception: pass"
        return exec, (code,)


def _arm_children(run: str, options: dict[str, str], hides_lines: bool) -> None:
    """Children that multiprocessing spawns and that train get an agent each."""
    from multiprocessing import spawn

    original = spawn.get_preparation_data

    @functools.wraps(original)
    def get_preparation_data(*args: Any, **kwargs: Any) -> dict[str, Any]:
        data = original(*args, **kwargs)
        data["gradvane"] = _Arm(run, options, hides_lines)
        return data

    spawn.get_preparation_data = get_preparation_data
