"""What a rank whose loader is slow looks like in a real Prometheus, from Python: the alerts that need phases fire for its
run, and not for a run whose ranks are alike."""

import contextlib
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import yaml
from discovery_test import PACKAGE, pytestmark  # noqa: F401  as there
from prometheus_test import SOURCE
from real_prometheus import RealPrometheus
from stack.processes import wait_for

sys.path.insert(0, str(Path(__file__).parents[1] / "warm"))

import pythons  # noqa: E402

SCRIPT = """
import sys, time
import torch
import gradvane

class Data(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            time.sleep(float(sys.argv[2]))
            yield torch.ones(4)

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
agent = gradvane.attach(model, optimizer, run=sys.argv[1], port=0, share_port=False)
print(agent.url, flush=True)
for x in torch.utils.data.DataLoader(Data(), batch_size=1):
    model(x).sum().backward()
    time.sleep(0.05)
    optimizer.step()
"""
FAST, SLOW = 0.002, 0.15
RUNS = {"even": [FAST, FAST], "uneven": [FAST, FAST, SLOW]}
"""seconds that each rank waits for a batch"""


def expression(alert):
    rules = yaml.safe_load((SOURCE / "dashboards/alerts/gradvane-alerts.yaml").read_text())
    found = [rule for group in rules["groups"] for rule in group["rules"] if rule.get("alert") == alert]
    return found[0]["expr"].replace("[5m]", "[20s]")


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phases")
    (folder / "train.py").write_text(textwrap.dedent(SCRIPT))
    with contextlib.ExitStack() as ends:
        def started(words, environment):
            process = pythons.Process(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
            ends.callback(process.wait)
            ends.callback(process.kill)
            return process

        of_all = {**os.environ, "PYTHONPATH": pythons.search_path(PACKAGE), "GRADVANE_RUN_DIR": str(folder), "GRADVANE_QUIET": "1"}
        ranks = [started(["train.py", run, str(nap)],
                         {**of_all, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(naps)), "GRADVANE_RUN_ID": run})
                 for run, naps in RUNS.items() for rank, nap in enumerate(naps)]
        targets = [rank.stdout.readline().strip().removeprefix("http://").rstrip("/") for rank in ranks]
        server = ends.enter_context(RealPrometheus(folder, [{"job_name": "training", "static_configs": [{"targets": targets}]}]))
        yield lambda text: {result["metric"].get("run"): float(result["value"][1]) for result in server.query(text)}


@pytest.mark.parametrize("alert", ["GradvaneStragglerRank", "GradvaneDataStarvation"])
def test_a_slow_loader_fires_the_alert_of_its_run_alone(ask, alert):
    def all_ranks_report():
        return ask("count by (run) (rate(gradvane_steps_total[20s]) > 0)") == {
            run: len(naps) for run, naps in RUNS.items()}

    wait_for(all_ranks_report, "all ranks", 120)
    rule = expression(alert)
    wait_for(lambda: "uneven" in ask(rule), alert, 120)
    time.sleep(5)
    assert set(ask(rule)) == {"uneven"}
