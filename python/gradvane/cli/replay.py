"""gradvane replay: what a recording tells, or shows."""

from __future__ import annotations

import argparse
import os
import threading
from types import ModuleType

from gradvane.cli import recordings, telling

_DESCRIPTION = """\
Says what a recording of the flight recorder tells: what was normal, what moved first, what broke, what came
after, and how it ended. FILE is a .gvrec: of an incident, or the ring of a run that was killed.
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gradvane replay",
        description=_DESCRIPTION,
        allow_abbrev=False,
    )
    made.add_argument("file", metavar="FILE")
    how = made.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="the same for programs")
    how.add_argument("--steps", action="store_true", help="the steps, one JSON object a line, as in the step log")
    how.add_argument("--serve", action="store_true", help="show it in a browser, with the API of a run; until ctrl-c")
    made.add_argument("--port", type=int, default=9464, metavar="N", help="of --serve; default %(default)s, or the "
                        "next free one; 0: any")
    made.add_argument("--address", default="127.0.0.1", metavar="A", help="of --serve; default %(default)s")
    made.add_argument("--allowed-hosts", default="", metavar="NAMES", help="of --serve; more names by which a "
                        "browser may call it, with commas")
    return made


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    if not 0 <= options.port <= 65535:
        parser().error("--port is a number from 0 to 65535")
    return recordings.told("replay", lambda native: _replay(native, options))


def _replay(native: ModuleType, options: argparse.Namespace) -> int:
    if options.serve:
        return _serve(native, options)
    if options.steps:
        telling.write(native.steps(os.fsencode(options.file)))
    else:
        say = telling.write if options.json else telling.tell
        say(native.story(os.fsencode(options.file), options.json))
    return 0


def _serve(native: ModuleType, options: argparse.Namespace) -> int:
    server = native.serve(os.fsencode(options.file), options.address, options.port, options.allowed_hosts)
    telling.write(server.url)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()
    return 0
