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
    if command == "run":
        from gradvane.cli.run import main as run

        run(arguments[1:])
    elif command in WORDS:
        module = importlib.import_module(f"gradvane.cli.{WORDS[command].module}")
        if WORDS[command].module == "terminal":
            sys.exit(module.main(command, arguments[1:]))
        sys.exit(module.main(arguments[1:]))
    elif command in ("-h", "--help", "help"):
        sys.stdout.write(usage())
    elif command == "--version":
        from importlib import metadata

        sys.stdout.write(f"gradvane {metadata.version('gradvane')}\n")
    else:
        what = f"there is no command '{command}'\n\n" if command else ""
        sys.stderr.write(f"{what}{usage()}")
        sys.exit(2)
