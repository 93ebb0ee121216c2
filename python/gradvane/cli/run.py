"""gradvane run: a training script as python would run it, and watched."""

from __future__ import annotations

import builtins
import difflib
import io
import os
import runpy
import sys
import textwrap
import types
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from typing import NoReturn

from gradvane import _autostart
from gradvane._errors import TrainingStopped, described, is_good_exit, reason_of
from gradvane.options import KEYS

_USAGE = """\
usage: gradvane run [options] script.py [arguments of the script]
       gradvane run [options] -m module [arguments of the module]

Runs the script as python would, and watches what trains in it: no edit is needed.
Also under torchrun:
torchrun --nproc-per-node 2 -m gradvane run script.py

  --require      end at once, with exit status 3, if Gradvane itself cannot start; without it the
                 script runs all the same, unwatched
  --quiet        say nothing on the standard error
  --OPTION VALUE any option, such as --run NAME, --port 9464, --step-log steps.jsonl;
                 gradvane run --help lists them all

--on-nonfinite skip leaves out steps whose loss or gradients are not finite; with stop, the script
ends at the first one, with exit status 83.
GRADVANE=off in the environment runs the script as if Gradvane were not there.
"""

CANNOT_START = 3
STOPPED = 83
"""exit status of a script that a policy has stopped"""
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")


@dataclass
class Request:
    """What the command line asks for."""

    target: str = ""
    is_module: bool = False
    arguments: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    requires: bool = False
    is_quiet: bool = False


class UsageError(Exception):
    """The command line makes no sense; the message says what would."""


def parse(arguments: list[str]) -> Request:
    """Ours end where the script begins: everything behind its name is the script's own."""
    request = Request()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-m", "--"):
            if not rest:
                raise UsageError(f"{word} needs a name behind it")
            request.is_module = word == "-m"
            request.target = rest.pop(0)
            break
        if not word.startswith("-") or word == "-":
            request.target = word
            break
        if word == "--require":
            request.requires = True
        elif word == "--quiet":
            request.is_quiet = True
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            key = name.replace("-", "_")
            if key not in KEYS:
                near = difflib.get_close_matches(key, KEYS, n=1)
                hint = f"; did you mean --{near[0].replace('_', '-')}?" if near else ""
                raise UsageError(f"there is no option --{name}{hint}")
            if not equals:
                if not rest:
                    raise UsageError(f"--{name} needs a value")
                value = rest.pop(0)
            request.options[key] = value
        else:
            raise UsageError(f"there is no option {word}")
    if not request.target:
        raise UsageError("which script?")
    if request.target == "-":
        raise UsageError("a script on the standard input cannot be watched: give it a name")
    request.arguments = rest
    return request


def main(arguments: list[str]) -> None:
    if any(word in ("-h", "--help") for word in arguments[:1]):
        sys.stdout.write(_USAGE + "\n" + options_text())
        return
    try:
        request = parse(arguments)
    except UsageError as error:
        sys.stderr.write(f"gradvane run: {error}\n\n{_USAGE}")
        sys.exit(2)
    if os.environ.get("GRADVANE", "").lower() not in _autostart.OFF:
        _autostart.arm(_run_name(request), request.options, hides_lines=request.is_quiet)
        if request.is_module and request.target in _LAUNCHERS and not request.is_quiet and not _autostart.is_quiet():
            sys.stderr.write(
                "gradvane: a launcher starts its processes without us; to watch them: "
                "torchrun [its options] -m gradvane run script.py\n"
            )
        if request.requires and not _autostart.start_now():
            sys.exit(CANNOT_START)
    _run(request)


def options_text() -> str:
    """Every option in groups, with its default and what is allowed."""
    from gradvane.cli.tables.options import GROUPS

    parts = []
    for title, options in GROUPS.items():
        parts.append(f"{title}:")
        for key, default, allowed, meaning in options:
            words = f"{meaning} Allowed: {allowed}." + (f" Default: {default}." if default else "")
            parts.append(f"  --{key.replace('_', '-')}")
            parts += textwrap.wrap(words, 96, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)
        parts.append("")
    return "\n".join(parts)


def _run_name(request: Request) -> str:
    if request.is_module:
        return request.target.removesuffix(".__main__").rpartition(".")[2]
    return os.path.splitext(os.path.basename(os.path.normpath(request.target)))[0]


def _run(request: Request) -> None:
    """Never returns but by the script's own end."""
    program = types.ModuleType("__main__")
    program.__dict__["__builtins__"] = builtins
    if "__annotations__" in vars(sys.modules["__main__"]):  # python gave its own some, up to 3.13
        program.__dict__["__annotations__"] = {}
    sys.modules["__main__"] = program
    sys.orig_argv = _as_python_was_called(request, sys.orig_argv, len(sys.argv) - 1)
    try:
        if request.is_module:
            sys.argv = ["-m", *request.arguments]
            _set_first_path(os.getcwd())
            # What `python -m` itself calls; it fills sys.argv[0] in.
            sys.argv[0] = request.target
            runpy._run_module_as_main(request.target)  # type: ignore[attr-defined]
        else:
            sys.argv = [request.target, *request.arguments]
            _run_script(request.target, program)
    except SystemExit as leaving:
        if not is_good_exit(leaving):
            _autostart.note_failure(reason_of(leaving))
        raise
    except BaseException as error:
        _end_by(error)


def _run_script(path: str, program: types.ModuleType) -> None:
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        _set_first_path(path)
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    path = os.path.join(os.getcwd(), path)  # as python has it in __file__ and tracebacks: absolute, dots and all
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        _autostart.note_refused()
        sys.stderr.write(
            f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n"
        )
        sys.exit(2)
    program.__file__ = path
    program.__dict__["__cached__"] = None
    program.__loader__ = SourceFileLoader("__main__", path)
    exec(compile(source, path, "exec", dont_inherit=True), program.__dict__)


def _as_python_was_called(request: Request, words: list[str], ours: int) -> list[str]:
    """sys.orig_argv without us: a script that starts itself again goes by it. `ours`: words behind our name."""
    before = words[: len(words) - ours]
    if before[-2:] == ["-m", "gradvane"]:
        before = before[:-2]
    elif len(before) > 1 and os.path.basename(before[-1]) in ("gradvane", "__main__.py"):
        before = before[:-1]
    else:
        return words
    return [*before, *(["-m"] if request.is_module else []), request.target, *request.arguments]


def _set_first_path(folder: str) -> None:
    """sys.path[0] is the script's folder, not that of the `gradvane` command."""
    if getattr(sys.flags, "safe_path", False) or sys.flags.isolated:
        return
    sys.path[0] = folder


def _end_by(error: BaseException) -> NoReturn:
    """Lets python end by it, as ever: status 1, or death by SIGINT. The script's own excepthook is called by
    python too, and the traceback that it gets has no frames of ours. A stop that a policy has asked for is no fault of
    the script's: one line, and a status of its own."""
    _autostart.note_failure(described(error))
    if isinstance(error, TrainingStopped):
        _autostart.logger.error("%s; exit status %d", described(error), STOPPED)
        sys.exit(STOPPED)
    hook = getattr(sys, "excepthook", sys.__excepthook__)

    def without_our_frames(kind: type[BaseException], error: BaseException, _: types.TracebackType | None) -> None:
        sys.excepthook = hook
        sys.last_traceback = error.__traceback__ = without_ours(error.__traceback__)
        try:
            hook(kind, error, error.__traceback__)
        except Exception as failed:  # python says so with a frame of ours in it
            sys.stderr.write("Error in sys.excepthook:\n")
            failed.__traceback__ = without_ours(failed.__traceback__)
            sys.__excepthook__(type(failed), failed, failed.__traceback__)
            sys.stderr.write("\nOriginal exception was:\n")
            sys.__excepthook__(kind, error, error.__traceback__)

    sys.excepthook = without_our_frames
    raise error


_RUNPY = runpy.run_module.__code__.co_filename
"""a file up to CPython 3.10, and "<frozen runpy>" from 3.11 on"""


def without_ours(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Frames of this package, and of runpy in front of the script's, are not the script's affair."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    first: types.TracebackType | None = None
    last: types.TracebackType | None = None
    is_in_front = True
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        is_ours = name.startswith(package) or (is_in_front and name == _RUNPY)
        following = traceback.tb_next
        if not is_ours:
            is_in_front = False
            if last is None:
                first = traceback
            else:
                last.tb_next = traceback
            last = traceback
        traceback = following
    if last is not None:
        last.tb_next = None
    return first
