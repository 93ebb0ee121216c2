"""Python's frames as read without the interpreter, against what every Python here says of them.

Pythons are looked for as GRADVANE_VENV_PYTHON, on PATH, among those of pyenv, and in GRADVANE_PYTHONS
(scripts/setup/fetch_pythons.py fills its default, .deps/pythons). The probe is named by
GRADVANE_PYTHON_STACK_PROBE.
"""

import functools
import glob
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", HERE.parents[1]))
PROBE = os.environ["GRADVANE_PYTHON_STACK_PROBE"]
SCRIPT = HERE / "python_stack_scenarios.py"
SCENARIOS = [name for part in ("code", "process") for name in re.findall(
    r"^@scenario\ndef (\w+)", (HERE / f"python_stack_{part}.py").read_text(encoding="utf-8"), re.MULTILINE)]
OURS = os.environ.get("GRADVANE_VENV_PYTHON", sys.executable)
MINORS = range(10, 15)
NONE, READABLE, UNKNOWN_LAYOUT = range(3)

# What a scenario has said when its process is at its end.
AFTERWARDS = {
    "while_the_interpreter_ends": "frames while it ends 0\n",
    "after_the_interpreter": "frames at exit 0\n",
    "a_thread_that_the_interpreter_leaves_behind": "frames at exit 0\nframes of the thread left behind 0\n",
}

ran: dict[str, set[str]] = {}


def run(python: str, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    # What is set for the Python of the build would lead another one to the wrong modules.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
    # The Pythons of .deps come without compiled modules.
    env.update(PYTHONIOENCODING="utf-8", PYTHONPYCACHEPREFIX=os.environ["GRADVANE_BUILD_DIR"] + "/pycache", **extra)
    return subprocess.run([python, *arguments], env=env, capture_output=True, text=True, encoding="utf-8",
                          timeout=300)


def folders() -> list[str]:
    named = os.environ.get("GRADVANE_PYTHONS", str(ROOT / ".deps" / "pythons"))
    return [named, *os.environ.get("PATH", "").split(os.pathsep),
            *sorted(glob.glob(str(Path.home() / ".pyenv" / "versions" / "*" / "bin")))]


def about(python: str) -> str | None:
    """sys.version of a Python that runs: a name on PATH may belong to one that does not."""
    try:
        done = run(python, "-c", "import sys; print(sys.version, sys.implementation.name, end='')")
    except OSError:
        return None
    return done.stdout if done.returncode == 0 and done.stdout.endswith("cpython") else None


@functools.lru_cache(maxsize=None)
def found() -> dict[str, str]:
    """Each Python by what it is called in the output; one that is there twice is taken once."""
    candidates = [OURS, *(os.path.join(folder, f"python3.{minor}") for folder in folders() for minor in MINORS)]
    pythons: dict[str, str] = {}
    for python in candidates:
        version = about(python) if os.path.exists(python) else None
        if version is not None and version not in pythons and minor_of(version) in MINORS:
            pythons[version] = python
    return pythons


def minor_of(version: str) -> int:
    return int(version.split(".")[1])


def cases():
    for number, (version, python) in enumerate(found().items()):
        name = f"{version.split()[0]}-{number}"
        yield from (pytest.param(name, python, scenario, id=f"{name}-{scenario}") for scenario in SCENARIOS)
    for minor in sorted(set(MINORS) - set(map(minor_of, found()))):
        yield pytest.param(None, f"3.{minor}", None, id=f"3.{minor}-not-here")


@pytest.mark.parametrize("name,python,scenario", cases())
def test_the_frames_are_those_that_python_tells_of(name, python, scenario):
    if name is None:
        pytest.skip(f"Python {python} is not on this machine; scripts/setup/fetch_pythons.py brings it")
    done = run(python, str(SCRIPT), PROBE, scenario)
    said = f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, said
    assert done.stdout.endswith("done\n" + AFTERWARDS.get(scenario, "")), said
    ran.setdefault(name, set()).add(scenario)


def test_a_process_without_python_has_no_frames():
    done = run("/bin/true", LD_PRELOAD=PROBE, GRADVANE_PROBE_AT_LOAD="1")
    assert done.stderr == f"state {NONE}\nframes 0\n", done


def test_an_interpreter_that_is_not_set_up_yet_has_no_frames_until_it_is():
    for python in found().values():
        done = run(python, str(SCRIPT), PROBE, "called_back_by_c", LD_PRELOAD=PROBE, GRADVANE_PROBE_AT_LOAD="1")
        assert done.stderr.endswith(f"state {READABLE}\nframes 0\n") and "\ndone\n" in done.stdout, done
        # Where python3.X is a script, the shell and what it starts load the probe before that.
        assert done.stderr.count(f"state {READABLE}\n") == 1, done


def test_a_debug_build_is_not_read():
    pythons = [path for folder in folders() for minor in MINORS
               if about(path := os.path.join(folder, f"python3.{minor}d")) is not None]
    if not pythons:
        pytest.skip("no debug build of Python is on this machine")
    for python in pythons:
        done = run(python, str(SCRIPT), PROBE, "look")
        assert f"state {UNKNOWN_LAYOUT} " in done.stdout and "\ndone\n" in done.stdout, done


def test_the_python_of_this_checkout_was_among_those_that_ran(capsys):
    missing = sorted(set(MINORS) - set(map(minor_of, found())))
    with capsys.disabled():
        for name, scenarios in ran.items():
            print(f"\nPython {name.split('-')[0]}: {len(scenarios)} of {len(SCENARIOS)}", end="")
        print(f"\nnot here: {', '.join(f'3.{minor}' for minor in missing) or 'none'}")
    ours = about(OURS)
    assert ours is not None
    assert len(ran.get(f"{ours.split()[0]}-0", ())) == len(SCENARIOS)
