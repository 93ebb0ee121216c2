"""A real Prometheus that scrapes what a test names."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

SERVERS = Path(os.environ["GRADVANE_SERVERS_DIR"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(found: Callable[[], object], seconds: float = 120) -> None:
    """Until it is true. A server that is still starting is asked again."""
    until = time.monotonic() + seconds
    while True:
        try:
            if found():
                return
        except OSError as error:
            assert time.monotonic() < until, error
        assert time.monotonic() < until, found
        time.sleep(0.2)


class RealPrometheus:
    """A scope, with a folder of its own, which scrapes every second."""

    def __init__(self, folder: Path, scrape_configs: list[dict[str, Any]]) -> None:
        (folder / "prometheus.yml").write_text(
            yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": scrape_configs}))
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        with open(folder / "prometheus.log", "w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [SERVERS / "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/prometheus",
                 f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT)

    def query(self, expression: str) -> list[dict[str, Any]]:
        url = f"{self._url}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(url, timeout=10) as answer:
            return list(json.load(answer)["data"]["result"])

    def __enter__(self) -> RealPrometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
