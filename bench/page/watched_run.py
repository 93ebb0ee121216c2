"""The fast training under Gradvane, and what can be asked of it."""

import contextlib
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAINING = pathlib.Path(__file__).with_name("fast_training.py")


class WatchedRun:
    def __init__(self, folder):
        self.times = folder / "times"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "build/release/python"), "OMP_NUM_THREADS": "1",
                       "GRADVANE_RUN": "fast", "GRADVANE_RUN_DIR": str(folder), "GRADVANE_PORT": "0",
                       "GRADVANE_QUIET": "1"}
        self.process = subprocess.Popen([sys.executable, "-m", "gradvane", "run", str(TRAINING), str(self.times)],
                                        env=environment, stdin=subprocess.PIPE)
        endpoint = folder / "endpoint.rank0.json"
        deadline = time.monotonic() + 60
        while not endpoint.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the training did not start")
            time.sleep(0.1)
        self.url = json.loads(endpoint.read_text())["url"]

    def ask(self, path):
        """Body, and the seconds that it took."""
        request = urllib.request.Request(self.url + path, headers={"Accept-Encoding": "gzip"})
        begin = time.perf_counter()
        with urllib.request.urlopen(request, timeout=30) as answer:
            body = answer.read()
            took = time.perf_counter() - begin
            packed = answer.headers.get("Content-Encoding") == "gzip"
        return gzip.decompress(body) if packed else body, took

    def resident_mib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return None

    def step_seconds(self, since, until):
        return [float(seconds) for at, seconds in (line.split() for line in self.times.read_text().splitlines()
                                                   if line.count(" ") == 1) if since <= float(at) < until]

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


@contextlib.contextmanager
def watched_run():
    with tempfile.TemporaryDirectory() as folder:
        run = WatchedRun(pathlib.Path(folder))
        try:
            yield run
        finally:
            run.close()
