"""The configuration of docs/scale.md in a real OpenTelemetry collector: what it scrapes of a run arrives as OTLP.

`make test-helm` runs it. COLLECTOR: the program.
"""

import http.server
import json
import os
import re
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COLLECTOR = os.environ["COLLECTOR"]
TRAINING = """
import torch, gradvane, time
torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
agent = gradvane.attach(model, optimizer, run="collected", port=0, run_dir="run", token="a-token-of-16-letters")
gradvane.log(note=float("nan"))
print(agent.url, flush=True)
while True:
    optimizer.zero_grad()
    loss = model(torch.randn(8, 16)).square().mean()
    loss.backward()
    gradvane.log(loss=loss)
    optimizer.step()
    time.sleep(0.01)
"""


class Backend(http.server.BaseHTTPRequestHandler):
    """Takes OTLP, as JSON."""

    taken: list[dict] = []

    def do_POST(self):
        assert self.path == "/v1/metrics"
        self.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.fixture
def backend():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(tmp_path):
    """Its address."""
    (tmp_path / "train.py").write_text(TRAINING)
    process = subprocess.Popen([os.environ["GRADVANE_VENV_PYTHON"], "train.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1", "GRADVANE_LINGER_SECONDS": "0"})
    yield process.stdout.readline().strip()
    process.kill()
    process.wait()


def shown_configuration():
    blocks = re.findall(r"```yaml\n(receivers:.*?)```", (ROOT / "docs" / "scale.md").read_text(), re.DOTALL)
    [block] = blocks
    return block


def start(folder, text):
    (folder / "collector.yaml").write_text(text)
    log = open(folder / "collector.log", "w")
    return subprocess.Popen([COLLECTOR, f"--config={folder}/collector.yaml"], stdout=log, stderr=log)


def found_by_name():
    """Metrics of the latest batch that has steps, with the attributes of their resource."""
    for batch in reversed(Backend.taken):
        for resource in batch["resourceMetrics"]:
            attributes = {one["key"]: one["value"].get("stringValue") for one in resource["resource"]["attributes"]}
            metrics = {metric["name"]: metric for scope in resource["scopeMetrics"] for metric in scope["metrics"]}
            if "gradvane_steps_total" in metrics:
                return attributes, metrics
    return None, {}


def test_the_configuration_shown_is_one_that_the_collector_takes(tmp_path):
    (tmp_path / "token").write_text("a-token-of-16-letters")

    def complaint(old: str, new: str) -> str:
        text = shown_configuration().replace("/etc/otel/gradvane.token", str(tmp_path / "token")).replace(old, new)
        (tmp_path / "collector.yaml").write_text(text)
        done = subprocess.run([COLLECTOR, "validate", f"--config={tmp_path}/collector.yaml"], capture_output=True, text=True, timeout=60)
        return done.stderr if done.returncode else ""

    assert complaint("", "") == ""
    assert "scrape_intervall" in complaint("scrape_interval", "scrape_intervall"), "the control"


def test_what_it_scrapes_arrives_with_its_kind_and_its_labels(tmp_path, run, backend):
    Backend.taken.clear()
    (tmp_path / "token").write_text("a-token-of-16-letters")
    config = yaml.safe_load(shown_configuration())
    [scrape] = config["receivers"]["prometheus"]["config"]["scrape_configs"]
    scrape["scrape_interval"] = "1s"
    scrape["authorization"]["credentials_file"] = str(tmp_path / "token")
    scrape["static_configs"][0]["targets"] = [run.removeprefix("http://")]
    [exporter] = config["exporters"].values()
    exporter |= {"endpoint": backend, "encoding": "json", "compression": "none"}
    process = start(tmp_path, yaml.safe_dump(config))
    try:
        until = time.monotonic() + 60
        while "gradvane_steps_total" not in found_by_name()[1] or len(Backend.taken) < 3:
            assert process.poll() is None and time.monotonic() < until, (tmp_path / "collector.log").read_text()[-3000:]
            time.sleep(0.2)
    finally:
        process.terminate()
        process.wait(30)
    attributes, metrics = found_by_name()
    assert attributes["service.name"] == "training"
    steps = metrics["gradvane_steps_total"]["sum"]
    assert steps["isMonotonic"] and steps["dataPoints"][0]["asDouble"] > 0
    labels = {one["key"]: one["value"]["stringValue"] for one in steps["dataPoints"][0]["attributes"]}
    assert labels["run"] == "collected" and labels["rank"] == "0"
    [durations] = metrics["gradvane_step_duration_seconds"]["histogram"]["dataPoints"]
    assert len(durations["bucketCounts"]) == len(durations["explicitBounds"]) + 1
    assert sum(map(int, durations["bucketCounts"])) == int(durations["count"]) > 0
    assert metrics["gradvane_loss"]["gauge"]["dataPoints"][0]["asDouble"] > 0
    # And nothing is missing.
    request = urllib.request.Request(f"{run}/metrics", headers={"Authorization": "Bearer a-token-of-16-letters"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        families = set(re.findall(r"^# TYPE (\S+)", answer.read().decode(), re.MULTILINE))
    assert {family.removesuffix("_info") for family in families} - set(metrics) == set(), "an info is named without its suffix"
