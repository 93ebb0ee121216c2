"""What a program's environment must say for its host syncs to be counted and reported."""

from __future__ import annotations

import glob
import importlib
import importlib.util
import os
import subprocess
from dataclasses import dataclass, field

import gradvane
from gradvane._autostart import OFF
from gradvane.cli import python_command

LIBRARY = "libgradvane_inject.so"
_CUPTI = ("libcupti.so.13", "libcupti.so.12")
_IN_WHEELS = ("cu13/lib/libcupti.so.13", "cuda_cupti/lib/libcupti.so.12")
DRIVER_READS = "CUDA_INJECTION64_PATH"


@dataclass
class Launch:
    """How the program is started."""

    command: list[str]
    environment: dict[str, str]
    off: str = ""
    """the setting that switches counting off"""
    is_injected: bool = False
    has_agent: bool = False
    """the script is run by `gradvane run`"""
    notes: list[str] = field(default_factory=list)
    """what the user should know beforehand"""


def prepare(command: list[str], reports: str, *, library: str | None, budget: int | None, port: int | None) -> Launch:
    """`reports`: a directory. `library`: a libcupti. None leaves what the environment says."""
    launch = Launch(command, dict(os.environ))
    launch.off = switched_off(launch.environment)
    if launch.off:
        return launch
    set_to = {
        "GRADVANE_SYNC_REPORT": os.path.join(reports, ""),
        "GRADVANE_SYNC_BUDGET": budget,
        "GRADVANE_PORT": port,
    }
    launch.environment.update({key: str(value) for key, value in set_to.items() if value is not None})
    if library:
        launch.environment["GRADVANE_SYNC_LIBRARY"] = library
    elif guessed := library_for(command, launch.environment):
        # For processes that have none: one that is there already goes before it.
        launch.environment["GRADVANE_SYNC_LIBRARY_ELSE"] = guessed
    if launch.environment.get("GRADVANE_SYNC_PROFILER") == "gate":
        launch.environment.setdefault("KINETO_USE_DAEMON", "1")  # only what is there from the start is safe
    _inject(launch)
    if not python_command.is_launcher(command) and (watched := python_command.watched(command)):
        launch.command = watched
    launch.has_agent = launch.command is not command or python_command.is_watched_already(command)
    if launch.has_agent:
        launch.environment["GRADVANE_INJECT_ENDPOINT"] = "off"  # the agent's is the one that knows of steps
    return launch


def switched_off(environment: dict[str, str]) -> str:
    for name in ("GRADVANE", "GRADVANE_SYNC"):
        if environment.get(name, "").lower() in OFF:
            return f"{name}={environment[name]}"
    return ""


def find_library() -> str | None:
    """The library that the driver is to load: the one that is asked for, that of this package, that of the
    build tree which this package lies in."""
    package = os.path.dirname(os.path.abspath(gradvane.__file__))
    places = [os.path.join(package, LIBRARY), os.path.join(package, os.pardir, os.pardir, "lib", LIBRARY)]
    if wanted := os.environ.get("GRADVANE_INJECT_LIBRARY"):
        places = [wanted]
    return next((os.path.realpath(place) for place in places if os.path.isfile(place)), None)


def _inject(launch: Launch) -> None:
    ours = find_library()
    theirs = launch.environment.get(DRIVER_READS)
    if theirs and (ours is None or os.path.realpath(theirs) != ours):
        launch.notes.append(f"{DRIVER_READS} is {theirs} already, so the program is not injected")
    elif ours is None:
        wanted = os.environ.get("GRADVANE_INJECT_LIBRARY", LIBRARY)
        launch.notes.append(f"{wanted} is not there, so the program is not injected")
    else:
        launch.environment[DRIVER_READS] = ours
        launch.is_injected = True


def library_for(command: list[str], environment: dict[str, str]) -> str | None:
    """The libcupti of an installed wheel, for programs that would find none. Another Python has wheels of its
    own: two libcuptis in one process would be worse than none."""
    name = os.path.basename(command[0])
    if environment.get("GRADVANE_SYNC_LIBRARY") or (name.startswith("python") and not python_command.is_ours(command[0])):
        return None
    if loader_finds_one(environment):
        return None
    spec = importlib.util.find_spec("nvidia")
    roots = (spec.submodule_search_locations if spec else None) or ()
    found = [path for root in roots for place in _IN_WHEELS if os.path.isfile(path := os.path.join(root, place))]
    toolkit = environment.get("CUDA_HOME") or environment.get("CUDA_PATH") or ""
    found += [path for name in _CUPTI if os.path.isfile(path := os.path.join(toolkit, "extras/CUPTI/lib64", name))]
    found.sort(key=lambda path: not path.endswith(f".{cuda_major()}"))
    return found[0] if found else None


def cuda_major() -> str:
    """That of the torch which Gradvane was built beside."""
    try:
        return str(importlib.import_module("gradvane._build").CUDA_MAJOR)
    except ImportError:
        return ""


def loader_finds_one(environment: dict[str, str]) -> bool:
    """Looks where the loader would, and loads nothing."""
    for folder in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if folder and any(glob.glob(os.path.join(glob.escape(folder), name)) for name in _CUPTI):
            return True
    for ldconfig in ("ldconfig", "/sbin/ldconfig"):
        try:
            said = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, timeout=20, check=False).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        return any(name in said for name in _CUPTI)
    return False
