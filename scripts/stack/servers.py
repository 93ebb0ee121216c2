"""A real Prometheus and a real Alertmanager on free ports, wired to rule files."""

from __future__ import annotations

import json
import os
import stat
import urllib.parse
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from stack.processes import Program, free_port, wait_for


def get_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def is_ready(url: str) -> bool:
    with urllib.request.urlopen(url + "/-/ready", timeout=2) as answer:
        return bool(answer.status == 200)


class Targets:
    """A file_sd list. Written whole and renamed, so that Prometheus never reads half of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write([])

    def write(self, addresses: Iterable[str]) -> None:
        text = json.dumps([{"targets": sorted(set(addresses))}])
        if self.path.exists() and self.path.read_text(encoding="utf-8") == text:
            return
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, self.path)


def endpoints_in(folder: Path) -> list[dict[str, Any]]:
    """What the agents of a run wrote of themselves into its run directory."""
    found = []
    for path in sorted(folder.glob("endpoint.rank*.json")):
        try:
            found.append(json.loads(_small_file(path)))
        except (OSError, ValueError):
            continue  # being written, or gone
    return found


def _small_file(path: Path, limit: int = 65536) -> str:
    """Raises OSError where it is a link or a pipe, which would be waited for, or longer than `limit` bytes."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        text = os.read(file, limit + 1) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    finally:
        os.close(file)
    if not text or len(text) > limit:
        raise OSError(f"{path} is no endpoint file")
    return text.decode()


def address_of(endpoint: dict[str, Any]) -> str:
    """To be scraped: ranks that share a port have the same."""
    return str(endpoint["node_url"]).removeprefix("http://").rstrip("/")


def alertmanager_command(programs: Path) -> list[str | Path]:
    """How to start Alertmanager.

    Debian's package looks for its templates under /usr/share. Where it was unpacked and not installed, they lie
    beside the program: in a mount namespace of its own it sees them where it expects them.
    """
    program = programs / "alertmanager"
    shared = programs.parent / "share"
    template = "prometheus/alertmanager/default.tmpl"
    if Path("/usr/share", template).exists() or not (shared / template).exists():
        return [program]
    inside = 'mount --bind "$0" /usr/share && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", inside, shared, program]


class Servers:
    """`with Servers(...) as servers:` has both, ready, and stops them at its end."""

    def __init__(self, programs: Path, folder: Path, rules: Iterable[Path], alertmanager: Path,
                 interval: str = "15s") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.targets = Targets(folder / "targets.json")
        self.prometheus_url = f"http://127.0.0.1:{free_port()}"
        self.alertmanager_url = f"http://127.0.0.1:{free_port()}"
        self._programs = programs
        self._alertmanager = alertmanager
        self._stack = ExitStack()
        (folder / "prometheus.json").write_text(json.dumps({  # JSON is YAML
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": [str(path) for path in rules],
            "alerting": {"alertmanagers": [{"static_configs": [
                {"targets": [self.alertmanager_url.removeprefix("http://")]}]}]},
            "scrape_configs": [{"job_name": "training", "file_sd_configs": [
                {"files": [str(self.targets.path)], "refresh_interval": "5s"}]}],
        }, indent=1), encoding="utf-8")

    def __enter__(self) -> Servers:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _start(self) -> None:
        alertmanager = self._stack.enter_context(Program("alertmanager", [
            *alertmanager_command(self._programs), f"--config.file={self._alertmanager}",
            f"--storage.path={self.folder}/alertmanager", "--cluster.listen-address=",
            f"--web.listen-address={self.alertmanager_url.removeprefix('http://')}"],
            self.folder / "alertmanager.log"))
        prometheus = self._stack.enter_context(Program("prometheus", [
            self._programs / "prometheus", f"--config.file={self.folder}/prometheus.json",
            f"--storage.tsdb.path={self.folder}/data",
            # What alerts are told again: often enough for short intervals.
            "--rules.alert.resend-delay=2s",
            f"--web.listen-address={self.prometheus_url.removeprefix('http://')}"],
            self.folder / "prometheus.log"))
        wait_for(lambda: is_ready(self.alertmanager_url), "Alertmanager", 30, alertmanager)
        wait_for(lambda: is_ready(self.prometheus_url), "Prometheus", 60, prometheus)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._stack.close()

    def query(self, expression: str) -> list[dict[str, Any]]:
        url = f"{self.prometheus_url}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        found: list[dict[str, Any]] = get_json(url)["data"]["result"]
        return found

    def firing(self) -> list[dict[str, str]]:
        """Labels of the alerts that fire now, as Prometheus says."""
        alerts = get_json(self.prometheus_url + "/api/v1/alerts")["data"]["alerts"]
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]
