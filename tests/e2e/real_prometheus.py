"""A real Prometheus that scrapes what a test names."""

from __future__ import annotations

import os
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(os.environ["GRADVANE_SOURCE_DIR"])
SERVERS = Path(os.environ["GRADVANE_SERVERS_DIR"])
sys.path.insert(0, str(ROOT / "scripts"))

from stack.processes import Program, free_port  # noqa: E402
from stack.servers import get_json  # noqa: E402


class RealPrometheus(Program):
    """A scope, with a folder of its own, which scrapes every second."""

    def __init__(self, folder: Path, scrape_configs: list[dict[str, Any]]) -> None:
        (folder / "prometheus.yml").write_text(
            yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": scrape_configs}))
        address = f"127.0.0.1:{free_port()}"
        self._url = f"http://{address}"
        super().__init__("prometheus", [
            SERVERS / "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/prometheus",
            f"--web.listen-address={address}"], folder / "prometheus.log")

    def query(self, expression: str) -> list[dict[str, Any]]:
        url = f"{self._url}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        return list(get_json(url)["data"]["result"])
