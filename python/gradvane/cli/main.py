"""gradvane run | syncs | replay | diff | status | top."""

from __future__ import annotations

import sys

_USAGE = """\
usage: gradvane run [options] script.py [arguments]    watch a training script, unchanged
       gradvane run [options] -m module [arguments]
       gradvane syncs [options] -- COMMAND ...         show where a program makes the CPU wait for the GPU
       gradvane replay FILE                            show what broke, from a recording
       gradvane diff A B                               compare two recordings
       gradvane status URL                             show the status of a run
       gradvane top URL                                the same, live
       gradvane --version

Run gradvane COMMAND --help for the options of a command.
"""


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    command = arguments[0] if arguments else ""
    if command == "run":
        from gradvane.cli.run import main as run

        run(arguments[1:])
    elif command == "syncs":
        from gradvane.cli.syncs import main as syncs

        sys.exit(syncs(arguments[1:]))
    elif command == "replay":
        from gradvane.cli.replay import main as replay

        sys.exit(replay(arguments[1:]))
    elif command == "diff":
        from gradvane.cli.diff import main as diff

        sys.exit(diff(arguments[1:]))
    elif command in ("status", "top"):
        from gradvane.cli.terminal import main as show

        sys.exit(show(command, arguments[1:]))
    elif command in ("-h", "--help", "help"):
        sys.stdout.write(_USAGE)
    elif command == "--version":
        from importlib import metadata

        sys.stdout.write(f"gradvane {metadata.version('gradvane')}\n")
    else:
        what = f"there is no command '{command}'\n\n" if command else ""
        sys.stderr.write(f"{what}{_USAGE}")
        sys.exit(2)
