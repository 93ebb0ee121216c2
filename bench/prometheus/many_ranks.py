"""What many ranks are for a Prometheus: series, bytes and time of scrapes, memory, time of rules and of dashboards.

    set -a; . .deps/env.sh; $GRADVANE_VENV_PYTHON bench/prometheus/many_ranks.py --ranks 64 --groups 50

Two real trainings are ranks 0 and 1 under the agent. This program answers for all the others: with what rank 1 publishes at
that moment, and the number of the rank in its place. A real Prometheus scrapes each of them, with the rules that are
shipped. After --minutes it is asked for its own numbers and for every query of the Fleet dashboard. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "dashboards")]

from alert_rules.files import rule_files  # noqa: E402
from alert_rules.windows import PRODUCTION, Settings  # noqa: E402
from board_check.asking import Asker  # noqa: E402
from board_check.boards import load, targets  # noqa: E402
from board_check.expansion import ALL, Window, chosen  # noqa: E402
from stack.processes import Program, free_port, wait_for  # noqa: E402

BUILD = ROOT / "build" / "release"
TRAINING = """
import os, time, torch, gradvane
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(int(os.environ["BLOCKS"]))])
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
gradvane.attach(model, optimizer)
while True:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    gradvane.count(tokens=4096)
    time.sleep(0.2)
"""
FRESH = 1.0
"""seconds for which what a rank published is good"""


class Ranks:
    """What each rank publishes."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._known: dict[int, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def text(self, rank: int) -> bytes:
        real = min(rank, 1)
        with self._lock:
            when, text = self._known.get(real, (-FRESH, ""))
            if time.monotonic() - when >= FRESH:
                request = urllib.request.Request(self._urls[real], headers={"Accept": "text/plain;version=0.0.4"})
                with urllib.request.urlopen(request, timeout=10) as answer:
                    text = answer.read().decode()
                self._known[real] = (time.monotonic(), text)
        return re.sub(f'\\brank="{real}"', f'rank="{rank}"', text).encode()


def serve(ranks: Ranks) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = ranks.text(int(self.path.split("/")[2]))
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def training(stack: ExitStack, folder: Path, rank: int, options: argparse.Namespace) -> str:
    """Starts it, and says where it is scraped."""
    script = folder / "train.py"
    script.write_text(TRAINING, encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GRADVANE")}
    environment = {
        **kept, "PYTHONPATH": str(BUILD / "python"), "BLOCKS": str(options.groups), "RANK": str(rank), "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(options.ranks), "GRADVANE_RUN": "many", "GRADVANE_RUN_DIR": str(folder / "run"),
        "GRADVANE_PORT": str(free_port()), "GRADVANE_SHARE_PORT": "off", "GRADVANE_WEIGHT_EVERY": "10",
        "GRADVANE_MAX_GROUPS": str(max(options.groups, 1)), "GRADVANE_MAX_SERIES": "10000",
        "GRADVANE_GROUP_SERIES": options.group_series}
    program = stack.enter_context(Program(f"rank {rank}", [sys.executable, "-B", script], folder / f"rank{rank}.log", environment))
    endpoint = folder / "run" / f"endpoint.rank{rank}.json"
    wait_for(endpoint.exists, f"rank {rank}", 120, program)
    return str(json.loads(endpoint.read_text(encoding="utf-8"))["url"]).rstrip("/") + "/metrics"


def prometheus(stack: ExitStack, folder: Path, port: int, options: argparse.Namespace) -> str:
    rules = folder / "rules"
    rules.mkdir()
    for name, text in rule_files(Settings(PRODUCTION)).items():
        (rules / name).write_text(text, encoding="utf-8")
    interval = f"{options.interval}s"
    own = free_port()
    jobs = [{"targets": [f"127.0.0.1:{port}"],
             "labels": {"__metrics_path__": f"/rank/{rank}/metrics", "instance": f"node{rank // 8}:{9464 + rank % 8}"}}
            for rank in range(options.ranks)]
    (folder / "prometheus.json").write_text(json.dumps({
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(path) for path in sorted(rules.iterdir())],
        "scrape_configs": [{"job_name": "gradvane", "static_configs": jobs},
                           {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{own}"]}]}],
    }), encoding="utf-8")
    program = Path(os.environ["GRADVANE_SERVERS"]) / "prometheus"
    stack.enter_context(Program("prometheus", [
        program, f"--config.file={folder / 'prometheus.json'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{own}"], folder / "prometheus.log"))
    return f"http://127.0.0.1:{own}"


def measured(url: str, options: argparse.Namespace, body: int) -> dict[str, Any]:
    end = time.time()
    window = Window(end - 60 * options.minutes, end, scrape=options.interval)
    values = {name: chosen([ALL]) for name in ("job", "rank", "instance", "group")}
    asker = Asker(url, window, {**values, **dict.fromkeys(("cluster", "namespace"), ".*"), "run": "many", "topk": "10"})

    def one(query: str) -> float:
        return asker.ask(query, now=True).only().last

    result: dict[str, Any] = {
        "ranks": options.ranks, "groups": options.groups, "group_series": options.group_series,
        "interval_seconds": options.interval, "minutes": options.minutes,
        "up": one('sum(up{job="gradvane"})'),
        "series_per_rank": one('quantile(0.5, scrape_samples_scraped{job="gradvane"})'),
        "series_of_rank_0": one('max(scrape_samples_scraped{job="gradvane"})'),
        "head_series": one("prometheus_tsdb_head_series"),
        "bytes_per_scrape": body,
        "scrape_seconds_median": one('quantile(0.5, scrape_duration_seconds{job="gradvane"})'),
        "scrape_seconds_max": one('max(scrape_duration_seconds{job="gradvane"})'),
        "prometheus_resident_bytes": one('process_resident_memory_bytes{job="prometheus"}'),
        "prometheus_heap_bytes": one('go_memstats_heap_alloc_bytes{job="prometheus"}'),
        "prometheus_cpu_share": one(f'rate(process_cpu_seconds_total{{job="prometheus"}}[{60 * options.minutes // 2}s])'),
        "rules_seconds": one("sum(prometheus_rule_group_last_duration_seconds)"),
        "alerts_firing": len(asker.ask('ALERTS{alertstate="firing"}', now=True).series),
    }
    board = next(board for board in load(ROOT / "dashboards" / "grafana") if board["uid"] == "gradvane-fleet")
    times = {}
    for target in targets(board):
        began = time.perf_counter()
        answer = asker.ask_target(target)
        times[target.name] = time.perf_counter() - began
        if answer.status != 200:
            raise RuntimeError(f"{target.name}: {answer.said}")
    slowest = max(times, key=times.__getitem__)
    return result | {"fleet_queries": len(times), "fleet_seconds_all": sum(times.values()),
                     "fleet_seconds_median": statistics.median(times.values()),
                     "fleet_slowest": slowest, "fleet_seconds_slowest": times[slowest]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--groups", type=int, default=50, help="of parameters, one for each block of the model")
    parser.add_argument("--group-series", default="all", help="the option group_series")
    parser.add_argument("--interval", type=int, default=15, help="seconds between scrapes")
    parser.add_argument("--minutes", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        ranks = Ranks([training(stack, folder, rank, options) for rank in (0, 1)])
        server = serve(ranks)
        stack.callback(server.shutdown)
        url = prometheus(stack, folder, server.server_address[1], options)
        time.sleep(60 * options.minutes)
        print(json.dumps(measured(url, options, len(ranks.text(1)))), flush=True)


if __name__ == "__main__":
    main()
