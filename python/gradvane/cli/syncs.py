"""gradvane syncs: runs any program, and says where it made the CPU wait for the GPU."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile

from gradvane.cli import child_process, injection, sync_reports
from gradvane.cli.agent_api import plain

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
        reports = sync_reports.read(folder)
    try:
        _tell(options, launch, reports, status)
    except BrokenPipeError:  # nobody reads it; the program's own end still counts
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115
    if status < 0:
        child_process.die_by(-status)
    if status == 0 and options.fail and (why := sync_reports.failure(reports, launch.off)):
        _say(why)
        return OVER_BUDGET
    return status


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gradvane syncs",
        usage="gradvane syncs [options] -- COMMAND ...",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="the reports as a JSON array on the standard output; that of "
                        "the program goes to the standard error")
    parser.add_argument("--budget", type=_natural, metavar="N", help="host syncs that a step of the training may have")
    parser.add_argument("--fail", action="store_true", help="exit status 3 if a step had more than the budget, or if "
                        "nobody can say")
    parser.add_argument("--top", type=_natural, default=20, metavar="N", help="places shown; default %(default)s")
    parser.add_argument("--port", type=int, metavar="P", help="of the metrics; default 9464, or the next free one; "
                        "-1: none")
    parser.add_argument("--library", metavar="PATH", help="a libcupti; default: the one that the program has, that the "
                        "loader finds, or of an installed wheel")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the program and its arguments")
    options = parser.parse_args(arguments)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command:
        parser.error("which program? gradvane syncs -- python train.py")
    if options.fail and options.budget is None:
        parser.error("--fail needs a --budget")
    if options.port is not None and not -1 <= options.port <= 65535:
        parser.error("--port is a number from -1 to 65535")
    return options


def _natural(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 2**31 - 1:
        raise argparse.ArgumentTypeError(f"{text} is not 0 or more")
    return value


def _tell(
    options: argparse.Namespace, launch: injection.Launch, reports: list[sync_reports.Report], status: int
) -> None:
    if options.json:
        sys.stdout.write(json.dumps([report.document for report in reports], indent=1) + "\n")
        sys.stdout.flush()
        return
    if status < 0:
        _say(f"the program died by {child_process.name_of(-status)}; its last second may be missing here")
    seen = [report for report in reports if report.used_cuda]
    if not seen:
        _say(_why_nothing(launch))
        return
    from gradvane.cli import sync_tables

    console = sync_tables.console()
    for report in seen:
        sync_tables.show(console, report, top=options.top, has_budget=options.budget is not None)


def _why_nothing(launch: injection.Launch) -> str:
    if launch.off:
        return f"host syncs were not counted: {launch.off}"
    if launch.is_injected:
        return "no process of this program used CUDA"
    return "no process that Gradvane saw used CUDA; only those with an agent of its own could be seen"


def _say(line: str) -> None:
    sys.stderr.write(f"gradvane syncs: {plain(line)}\n")

