"""A char_gpt run in the background, and what it says over HTTP."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

CHAR_GPT = Path(os.environ["GRADVANE_BIN_DIR"]) / "char_gpt"


class TrainingRun:
    """`with TrainingRun(folder, ...) as run:` trains until the block ends, then is interrupted."""

    def __init__(self, folder, *arguments, steps=1_000_000, **environment):
        self.folder = Path(folder)
        self.log = self.folder / "steps.jsonl"
        self.output = open(self.folder / "output.txt", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [CHAR_GPT, "--size", "tiny", "--steps", str(steps), "--threads", "1", "--sample", "0",
             "--no-eval", *arguments],
            env={**os.environ, "GRADVANE_PORT": "0", "GRADVANE_RUN_DIR": str(self.folder),
                 "GRADVANE_STEP_LOG": str(self.log), "OMP_NUM_THREADS": "1",
                 # A machine that runs tests may give the worker no core for a second or two.
                 "GRADVANE_RING_SLOTS": "8192", **environment},
            stdout=self.output, stderr=subprocess.STDOUT,
        )

    def __enter__(self):
        self.wait_for(lambda: self.endpoint()["state"] == "running")
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=60)
        finally:
            self.process.kill()
            self.output.close()

    def wait_for(self, condition, seconds=60):
        until = time.monotonic() + seconds
        while True:
            try:
                if condition():
                    return
            except (OSError, ValueError, KeyError, IndexError):
                pass  # not there yet
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError("it never came; the run said: " + self.said())
            time.sleep(0.05)

    def said(self):
        return (self.folder / "output.txt").read_text(encoding="utf-8")

    def endpoint(self):
        return json.loads((self.folder / "endpoint.rank0.json").read_text())

    def get(self, path, **headers):
        request = urllib.request.Request(self.endpoint()["url"] + path, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read().decode()

    def json(self, path):
        return json.loads(self.get(path))

    def samples(self):
        """(name, labels as a dict) -> value, of /metrics."""
        from prometheus_client.openmetrics.parser import text_string_to_metric_families

        text = self.get("/metrics", Accept="application/openmetrics-text;version=1.0.0")
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def step(self):
        return self.json("/api/v1/status")["latest"]["run_step"]

    def steps(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def series(samples, name, **labels):
    """The samples of `name` whose labels include `labels`, as a list of (labels, value)."""
    return [
        (dict(have), value)
        for (sample, have), value in samples.items()
        if sample == name and labels.items() <= dict(have).items()
    ]
