"""Time of a training step while others attack the endpoint of its agent, in all the ways of tests/exporters/web/attack.py,
over TLS with a password.

Three arms take turns: no one attacks; the same attack on a Prometheus of its own, which costs the machine the same but
has nothing to do with the training; the attack on the endpoint. One JSON object a line, the last one with the ratios.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import gradvane

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "tests" / "exporters" / "web"
sys.path[:0] = [str(WEB), str(ROOT / "scripts")]

from stack.processes import free_port  # noqa: E402
from web_server import Authority, ask, hashed, trusting  # noqa: E402


class Attacker:
    """On the last core alone, where there are several: it is another machine in life."""

    def __init__(self, port, certificate):
        self.process = subprocess.Popen([sys.executable, WEB / "attack.py", str(port), certificate], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        os.sched_setaffinity(self.process.pid, {max(os.sched_getaffinity(0))})

    def turn(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline()

    def __enter__(self):
        self.turn()

    def __exit__(self, *_):
        self.turn()


def training(width, batch):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(8)])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    data = torch.randn(batch, width)

    def step():
        optimizer.zero_grad()
        model(data).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return model, optimizer, step


def seconds_of_steps(step, duration):
    taken, until = [], time.perf_counter() + duration
    while time.perf_counter() < until:
        begin = time.perf_counter()
        step()
        taken.append(time.perf_counter() - begin)
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4, help="of each arm in a round")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--prometheus", default=ROOT / ".deps" / "debian" / "usr" / "bin" / "prometheus")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ca = Authority(folder)
        ca.issue("server")
        web_config = folder / "web.yml"
        web_config.write_text("tls_server_config: {cert_file: server.crt, key_file: server.key}\n"
                              f"basic_auth_users: {{alice: '{hashed('right', 10)}'}}\n")
        (folder / "prometheus.yml").write_text("{}\n")
        port = free_port()
        with open(folder / "prometheus.log", "w") as log:
            prometheus = subprocess.Popen(
                [options.prometheus, f"--config.file={folder}/prometheus.yml", f"--web.config.file={web_config}",
                 f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={folder}/data"], stdout=log, stderr=log)
        model, optimizer, step = training(options.width, options.batch)
        agent = gradvane.attach(model, optimizer, run="attacked", port=0, run_dir=str(folder / "run"), share_port=False,
                                web_config=str(web_config))
        context = trusting(ca.certificate)
        assert ask(f"{agent.url}/metrics", context, user="alice:right")[0] == 200
        assert ask(f"https://127.0.0.1:{port}/metrics", context, user="alice:right")[0] == 200
        arms = {"nobody": contextlib.nullcontext(), "another process": Attacker(port, ca.certificate),
                "the endpoint": Attacker(int(agent.url.rpartition(":")[2]), ca.certificate)}
        medians = {arm: [] for arm in arms}
        high = {arm: [] for arm in arms}
        seconds_of_steps(step, 2)
        for number in range(options.rounds):
            for arm in sorted(arms, key=lambda arm: (list(arms).index(arm) + number) % 3):
                with arms[arm]:
                    taken = seconds_of_steps(step, options.seconds)
                time.sleep(0.5)
                medians[arm].append(statistics.median(taken))
                high[arm].append(statistics.quantiles(taken, n=100)[98])
                print(json.dumps({"round": number, "attacked": arm, "steps": len(taken), "median_ms": round(1e3 * medians[arm][-1], 3),
                                  "p99_ms": round(1e3 * high[arm][-1], 3)}), flush=True)
        incidents = [one.kind for one in agent.incidents]
        agent.detach()
        prometheus.terminate()

    def ratio(of, to, values):
        return round(statistics.median(a / b for a, b in zip(values[of], values[to])), 3)

    print(json.dumps({
        "median_endpoint_to_nobody": ratio("the endpoint", "nobody", medians),
        "median_endpoint_to_another_process": ratio("the endpoint", "another process", medians),
        "p99_endpoint_to_another_process": ratio("the endpoint", "another process", high),
        "incidents": incidents, "torch": torch.__version__, "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d")}))


if __name__ == "__main__":
    main()
