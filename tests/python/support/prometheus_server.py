"""A real Prometheus that scrapes a run."""

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

SERVERS = Path(os.environ["GRADVANE_SERVERS_DIR"])


class Prometheus:
    """Scrapes one address every two seconds."""

    EVERY = 2

    def __init__(self, folder, target, job=""):
        """`job`: more of the scrape job, as in {authorization: {...}}, without the braces."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (folder / "prometheus.yml").write_text(
            f"global: {{scrape_interval: {self.EVERY}s}}\nscrape_configs:\n"
            f"  - {{job_name: training, static_configs: [{{targets: ['{target}']}}]{', ' + job if job else ''}}}\n")
        self.process = subprocess.Popen(
            [SERVERS / "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def times(self, rank):
        """When it has a sample of the rank's."""
        query = urllib.parse.quote(f'gradvane_steps_total{{rank="{rank}"}}[5m]')
        with contextlib.suppress(OSError):  # it is still starting
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?query={query}", timeout=10) as answer:
                found = json.load(answer)["data"]["result"]
            return [when for when, _ in found[0]["values"]] if found else []
        return []

    def wait_for_samples(self, rank, count, after=0.0):
        until = time.monotonic() + 60
        while len([when for when in self.times(rank) if when > after]) < count:
            assert time.monotonic() < until, (rank, self.times(rank))
            time.sleep(0.2)
