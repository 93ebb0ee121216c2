"""gradvane syncs: runs any program, and says where it made the CPU wait for the GPU."""

from __future__ import annotations

import argparse
import json
import re
import tempfile

from gradvane.cli import child_process, injection, sync_reports, telling

OVER_BUDGET = 3
_CANNOT_RUN, _NOT_FOUND = 126, 127
_DESCRIPTION = """\
Runs COMMAND and says on the standard error, when it is over, where it made the CPU wait for the GPU: a table
of places for each of its processes. Any CUDA program will do. Of a Python script steps are known too: it is
run by `gradvane run`. The metrics are served while it runs.
"""


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    # A grandchild may still write there, which is no reason to lose the exit status.
    with tempfile.TemporaryDirectory(prefix="gradvane-syncs-", ignore_cleanup_errors=True) as folder:
        launch = injection.prepare(
            options.command, folder, library=options.library, budget=options.budget, port=options.port
        )
        for note in launch.notes:
            _say(note)
        try:
            status = child_process.run(launch.command, launch.environment, stdout=2 if options.json else None)
        except OSError as error:
            _say(f"{options.command[0]}: {error.strerror}")
            return _NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN
        found = sync_reports.read(folder)
    try:
        _tell(options, launch, found, status)
    except telling.OutputError as error:  # the program's own end counts for more
        _say(str(error))
        status = status or telling.CANNOT
    if status < 0:
        child_process.die_by(-status)
    if status == 0 and options.fail and (why := sync_reports.failure(found, launch.off)):
        _say(why)
        return OVER_BUDGET
    return status


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="gradvane syncs",
        usage="gradvane syncs [options] -- COMMAND ...",
        description=_DESCRIPTION,
        allow_abbrev=False,
    )
    made.add_argument("--json", action="store_true", help="the reports as a JSON array on the standard output; that of "
                        "the program goes to the standard error")
    made.add_argument("--budget", type=_natural, metavar="N", help="most host syncs per step of the training")
    made.add_argument("--fail", action="store_true", help="exit status 3 if a step had more than the budget, or if "
                        "that is not known")
    made.add_argument("--top", type=_natural, default=20, metavar="N", help="places shown; default %(default)s")
    made.add_argument("--port", type=int, metavar="P", help="of the metrics; default 9464, or the next free one; "
                        "-1: none")
    made.add_argument("--library", metavar="PATH", help="a libcupti; default: the one that the program has, that the "
                        "loader finds, or of an installed wheel")
    made.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the program and its arguments")
    return made


def _parse(arguments: list[str]) -> argparse.Namespace:
    options = parser().parse_args(arguments)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command:
        parser().error("which program? gradvane syncs -- python train.py")
    if options.fail and options.budget is None:
        parser().error("--fail needs a --budget")
    if options.port is not None and not -1 <= options.port <= 65535:
        parser().error("--port is a number from -1 to 65535")
    return options


def _natural(text: str) -> int:
    if not re.fullmatch(r"-?\d{1,100}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text} is no whole number")
    if not 0 <= int(text) <= 2**31 - 1:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more" if text[0] == "-" else f"{text} is too much")
    return int(text)


def _tell(
    options: argparse.Namespace, launch: injection.Launch, found: sync_reports.Found, status: int
) -> None:
    seen = [report for report in found.reports if report.used_cuda]
    if options.json:
        documents = [report.document for report in found.reports]
        if not documents:
            documents.append(sync_reports.nothing(_why_nothing(launch, found)))
        telling.write(json.dumps(documents, indent=1))
        return
    if status < 0:
        _say(f"the program died by {child_process.name_of(-status)}; its last second may be missing here")
    if not seen:
        _say(_why_nothing(launch, found))
        return
    if found.silent:
        _say(_who_is_silent(found.silent))
    from gradvane.cli import sync_tables

    console = sync_tables.console()
    for report in seen:
        sync_tables.show(console, report, top=options.top, has_budget=options.budget is not None)


def _why_nothing(launch: injection.Launch, found: sync_reports.Found) -> str:
    """Why there are no counts to show: no more than what is known."""
    if launch.off:
        return f"host syncs were not counted: {launch.off}"
    if found.silent:
        return _who_is_silent(found.silent)
    if len(found.reports) == 1:
        return "the one process that left a report did not use CUDA"
    if found.reports:
        return f"{len(found.reports)} processes left a report, and none of them used CUDA"
    if launch.is_injected:
        library = launch.environment[injection.DRIVER_READS]
        return f"no process left a report: none used CUDA, or the driver could not load {library}"
    return "no process left a report: without injection only those with an agent of Gradvane do"


def _who_is_silent(pids: list[int]) -> str:
    names = ", ".join(str(pid) for pid in pids)
    return f"used CUDA and left no report: {'process' if len(pids) == 1 else 'processes'} {names}"


def _say(line: str) -> None:
    telling.say("syncs", line)

