"""The `gradvane` command: its words, and which module each belongs to."""

from __future__ import annotations

import importlib
import sys
from typing import NamedTuple


class Word(NamedTuple):
    usage: str
    summary: str
    module: str
    """in gradvane.cli; it has main(arguments), and parser() unless it is `run`"""


WORDS = {
    "run": Word("[options] script.py [arguments]", "watch a training script, unchanged", "run"),
    "syncs": Word("[options] -- COMMAND ...", "show where a program makes the CPU wait for the GPU", "syncs"),
    "ls": Word("", "list the live runs on this machine", "ls"),
    "status": Word("[RUN]", "show the status of a run", "terminal"),
    "top": Word("[RUN]", "the same, live", "terminal"),
    "open": Word("[RUN]", "open the page of a run", "open"),
    "replay": Word("FILE", "show what broke, from a recording", "replay"),
    "diff": Word("A B", "compare two recordings", "diff"),
    "sd": Word("[options]", "list live runs for Prometheus (file_sd, http_sd)", "sd"),
    "doctor": Word("", "check this installation and its environment", "doctor"),
    "completions": Word("bash|zsh", "print a script that completes these words", "completions"),
}


def usage() -> str:
    rows = [(f"gradvane {name} {word.usage}".rstrip(), word.summary) for name, word in WORDS.items()]
    rows.insert(1, ("gradvane run [options] -m module [arguments]", ""))
    rows.append(("gradvane --version", ""))
    width = max(len(left) for left, _ in rows) + 3
    lines = [f"{left:{width}}{right}".rstrip() for left, right in rows]
    return ("usage: " + "\n       ".join(lines) + "\n\nRUN is the name of a live run on this machine, or an address such as "
            "http://127.0.0.1:9464.\nRun gradvane COMMAND --help for the options of a command.\n")


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    command = arguments[0] if arguments else ""
    if command == "run":  # the process is the script's from here on
        from gradvane.cli.run import main as run

        run(arguments[1:])
        return
    from gradvane.cli import telling

    telling.begin()
    try:
        try:
            sys.exit(_status(command, arguments[1:]))
        finally:
            sys.stdout.flush()
    except telling.OutputError as error:
        sys.exit(telling.complain(command, str(error)))


def _status(command: str, arguments: list[str]) -> int:
    """The exit status."""
    from gradvane.cli.telling import write

    if command in WORDS:
        module = importlib.import_module(f"gradvane.cli.{WORDS[command].module}")
        main_of = module.main
        status: int = main_of(command, arguments) if WORDS[command].module == "terminal" else main_of(arguments)
        return status
    if command in ("-h", "--help", "help"):
        write(usage())
    elif command == "--version":
        write(f"gradvane {importlib.import_module('gradvane._build').VERSION}")
    else:
        what = f"there is no command '{command}'\n\n" if command else ""
        sys.stderr.write(f"{what}{usage()}")
        return 2
    return 0
