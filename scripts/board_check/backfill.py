"""Puts the known run into a real Prometheus, as if it had been scraped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from board_check.known_run import BEGIN, END, SCRAPE, STARTED, known_series
from board_check.known_shapes import Known
from stack.processes import Program, free_port, wait_for
from stack.servers import is_ready

RULES = Path(__file__).resolve().parents[2] / "dashboards" / "alerts" / "gradvane-recording.yaml"
RULES_ON_RULES = 3
"""how many of them build on each other, at most"""


def lines(known: Known) -> list[str]:
    labels = ",".join(f'{name}="{value}"' for name, value in known.labels.items())
    head = f"{known.metric}{{{labels}}}"
    found = []
    for when in range(BEGIN, END + 1, SCRAPE):
        value = known.course(when - BEGIN - STARTED)
        if value is not None:
            found.append(f"{head} {float(value)!r} {when}")
    return found


def openmetrics(known: Iterable[Known] | None = None) -> str:
    """Of the known run, unless others are given."""
    return "\n".join(line for each in known or known_series() for line in lines(each)) + "\n# EOF\n"


def make_blocks(programs: Path, folder: Path, known: Iterable[Known] | None = None) -> Path:
    """The database, in `folder`."""
    text = folder / "known.txt"
    text.write_text(openmetrics(known), encoding="utf-8")
    data = folder / "data"
    done = subprocess.run([programs / "promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", text, data],
                          capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"promtool: {done.stdout}{done.stderr}")
    return data


def add_recorded(programs: Path, data: Path, url: str) -> None:
    """What the shipped recording rules make of the run. promtool asks the server at `url` for it, which has to start
    again to see it."""
    done = subprocess.run([programs / "promtool", "tsdb", "create-blocks-from", "rules", f"--url={url}", f"--start={BEGIN}",
                           f"--end={END}", f"--eval-interval={SCRAPE}s", f"--output-dir={data}", RULES],
                          capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"promtool: {done.stdout}{done.stderr}")


class KnownPrometheus:
    """`with KnownPrometheus(...) as there:` has the known run, or what is given instead, at there.url."""

    def __init__(self, programs: Path, folder: Path, known: Iterable[Known] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        (folder / "prometheus.json").write_text("{}", encoding="utf-8")
        self._programs, self._data = programs, make_blocks(programs, folder, known)
        self._command = [programs / "prometheus", f"--config.file={folder}/prometheus.json",
                         f"--storage.tsdb.path={self._data}",
                         # The run lies where it lies, however long ago that is by now.
                         "--storage.tsdb.retention.time=100y",
                         # promtool cannot write the marks with which a series ends: it ends when a scrape is missed.
                         f"--query.lookback-delta={SCRAPE + 1}s",
                         f"--web.listen-address={self.url.removeprefix('http://')}"]
        self._log = folder / "prometheus.log"

    def __enter__(self) -> KnownPrometheus:
        # promtool takes each rule by itself: one that builds on another finds it the next time.
        for _ in range(RULES_ON_RULES):
            self._start()
            try:
                add_recorded(self._programs, self._data, self.url)
            finally:
                self._program.stop()
        self._start()
        return self

    def _start(self) -> None:
        self._program = Program("prometheus", [str(part) for part in self._command], self._log)
        try:
            wait_for(lambda: is_ready(self.url), "Prometheus", 60, self._program)
        except BaseException:
            self._program.stop()
            raise

    def __exit__(self, *fault: object) -> None:
        self._program.stop()
