"""Puts the known run into a real Prometheus, as if it had been scraped."""

from __future__ import annotations

import subprocess
from pathlib import Path

from board_check.known_run import BEGIN, END, SCRAPE, STARTED, known_series
from board_check.known_shapes import Known
from stack.processes import Program, free_port, wait_for
from stack.servers import is_ready


def lines(known: Known) -> list[str]:
    labels = ",".join(f'{name}="{value}"' for name, value in known.labels.items())
    head = f"{known.metric}{{{labels}}}"
    found = []
    for when in range(BEGIN, END + 1, SCRAPE):
        value = known.course(when - BEGIN - STARTED)
        if value is not None:
            found.append(f"{head} {float(value)!r} {when}")
    return found


def openmetrics() -> str:
    return "\n".join(line for known in known_series() for line in lines(known)) + "\n# EOF\n"


def make_blocks(programs: Path, folder: Path) -> Path:
    """The database, in `folder`."""
    text = folder / "known.txt"
    text.write_text(openmetrics(), encoding="utf-8")
    data = folder / "data"
    done = subprocess.run([programs / "promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", text, data],
                          capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"promtool: {done.stdout}{done.stderr}")
    return data


class KnownPrometheus:
    """`with KnownPrometheus(...) as there:` has the known run at there.url."""

    def __init__(self, programs: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        (folder / "prometheus.json").write_text("{}", encoding="utf-8")
        self._command = [programs / "prometheus", f"--config.file={folder}/prometheus.json",
                         f"--storage.tsdb.path={make_blocks(programs, folder)}",
                         # The run lies where it lies, however long ago that is by now.
                         "--storage.tsdb.retention.time=100y",
                         # promtool cannot write the marks with which a series ends: it ends when a scrape is missed.
                         f"--query.lookback-delta={SCRAPE + 1}s",
                         f"--web.listen-address={self.url.removeprefix('http://')}"]
        self._log = folder / "prometheus.log"

    def __enter__(self) -> KnownPrometheus:
        self._program = Program("prometheus", [str(part) for part in self._command], self._log)
        try:
            wait_for(lambda: is_ready(self.url), "Prometheus", 60, self._program)
        except BaseException:
            self._program.stop()
            raise
        return self

    def __exit__(self, *fault: object) -> None:
        self._program.stop()
