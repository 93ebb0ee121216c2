"""Every query of every dashboard over real trainings under the agent, scraped by a real Prometheus with the shipped
rules: what it answers is what the agent publishes, not what somebody thinks that it does."""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "dashboards")]

from alert_rules.files import rule_files  # noqa: E402
from alert_rules.windows import PRODUCTION, SHORT, Settings  # noqa: E402
from board_check.asking import Asker  # noqa: E402
from board_check.boards import events, load, targets, variables  # noqa: E402
from board_check.expansion import ALL, Window, chosen  # noqa: E402
from stack.processes import Program, free_port, wait_for  # noqa: E402
from stack.servers import Servers, address_of, endpoints_in  # noqa: E402

RECORDING = "gradvane-recording.yaml"
BUILD = Path(os.environ["GRADVANE_BUILD_DIR"])
BOARDS = load(ROOT / "dashboards" / "grafana")
OVERVIEW = next(board for board in BOARDS if board["uid"] == "gradvane-overview")
TARGETS = [target for board in BOARDS for target in targets(board)]
# What must have been scraped before the dashboards are asked.
SEEN = ("gradvane_amp_overflow_steps_total >= 2", 'gradvane_incidents_total{class="nonfinite_loss"} > 0',
        'gradvane_recordings_total{result="ok"} > 0', 'gradvane_rollbacks_total{reason="requested"} > 0', 'gradvane_user_metric{name="checkpoint_timestamp_seconds"}',
        'last_over_time(ALERTS{alertstate="firing",run="live"}[10m])', 'gradvane_weight_norm{rank="0"}', 'gradvane_weight_norm{rank="1"}')

NO_GPU = "there are no host syncs where there is no GPU"
NO_WAIT = "no rank waits for another"
NO_DEVICE = "there is no memory of a device"
# Queries that have no data on this run, and why: the panel, or the panel and one of its queries.
MAY_BE_EMPTY = {
    "gradvane-overview: Device memory": NO_DEVICE,
    "gradvane-overview: Allocations retried and failed": NO_DEVICE,
    "gradvane-overview: Devices": NO_DEVICE,
    **{f"gradvane-overview: {panel}": "there is no dcgm-exporter" for panel in (
        "GPU utilization", "Tensor cores", "Power", "Temperature")},
    "gradvane-fleet: Device memory of each rank": NO_DEVICE,
    "gradvane-fleet: Ranks side by side [L]": NO_DEVICE,
    "gradvane-fleet: Ranks side by side [F]": NO_GPU,
    "gradvane-fleet: Ranks side by side [G]": NO_WAIT,
    "gradvane-fleet: Waiting for other ranks": NO_WAIT,
    "gradvane-fleet: Blocked in host syncs": NO_GPU,
    "gradvane-gradients: Gradient norm of each rank [B]": "no parameter is sharded",
    "gradvane-stability: Ranks that decide together": "each rank decides alone",
    **{f"gradvane-syncs: {panel}": NO_GPU for panel in (
        "Host syncs per step", "Time blocked", "Steps over the budget so far", "Gradvane's own, per step",
        "Rejected in a capture", "Host syncs per step, by kind", "Time blocked, by kind",
        "Time lost by place in the code", "Time lost by place", "Time lost by place, over time",
        "Host syncs per step, by phase", "Time blocked in a step, by phase", "Latest step against the budget",
        "Share of the step time, by rank", "Steps over the budget", "Host syncs per step, by origin",
        "Time blocked, by origin", "Polls per step", "Time in polls", "Gradvane's own against its budget")},
}


def environment(rank: int, run_dir: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GRADVANE")}
    return {**kept, "PYTHONPATH": str(BUILD / "python"), "OMP_NUM_THREADS": "1", "GRADVANE_RUN": "live",
            "GRADVANE_RUN_DIR": str(run_dir), "GRADVANE_PORT": str(free_port()), "RANK": str(rank),
            "LOCAL_RANK": "0", "WORLD_SIZE": "2", "GRADVANE_WEIGHT_EVERY": "5",
            "GRADVANE_FLOPS_PER_TOKEN": "1e6", "GRADVANE_PEAK_FLOPS": "1e12"}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Rank 0 is the demo in C++, which marks its phases; rank 1 is in Python, with a gradient scaler."""
    folder = tmp_path_factory.mktemp("live")
    run_dir = folder / "run"
    rules = folder / "rules"
    rules.mkdir()
    # Alerts that fire soon, and the recording rules by the names that dashboards have.
    shipped = rule_files(Settings(PRODUCTION))
    for name, text in {**rule_files(Settings(SHORT)), RECORDING: shipped[RECORDING]}.items():
        (rules / name).write_text(text, encoding="utf-8")
    with ExitStack() as stack:
        servers = stack.enter_context(Servers(
            Path(os.environ["GRADVANE_SERVERS_DIR"]), folder / "servers", sorted(rules.iterdir()),
            ROOT / "dashboards" / "alertmanager" / "alertmanager.yaml", "1s"))
        trainings = [
            stack.enter_context(Program("char_gpt", [
                BUILD / "bin" / "char_gpt", "--size", "tiny", "--threads", "1", "--steps", "1000000", "--no-eval",
                "--sample", "0"], folder / "rank0.log", environment(0, run_dir))),
            stack.enter_context(Program("live_training", [
                sys.executable, "-B", Path(__file__).with_name("live_training.py"), folder],
                folder / "rank1.log", environment(1, run_dir)))]
        for training, rank in zip(trainings, (0, 1)):
            wait_for((run_dir / f"endpoint.rank{rank}.json").exists, f"rank {rank}", 120, training)
        servers.targets.write(address_of(endpoint) for endpoint in endpoints_in(run_dir))
        wait_for(lambda: len(servers.query('gradvane_run_step{run="live"}')) == 2, "the first scrapes", 60)
        (folder / "trigger").touch()
        for query in SEEN:
            wait_for(lambda: servers.query(query), query, 120)
        time.sleep(5)  # so that what came last has a rate
        # A scrape that was missed last would take all series away.
        wait_for(lambda: len(servers.query('min_over_time(up[10s]) == 1 and count_over_time(up[10s]) >= 9')) >= 1,
                 "ten scrapes without a gap", 120)
        end = math.floor(time.time())
        window = Window(end - 60, end, scrape=1, points=60)
        values = {name: chosen([ALL]) for name in ("job", "rank", "instance", "group")}
        values |= dict.fromkeys(("cluster", "namespace"), ".*")
        yield Asker(servers.prometheus_url, window, {**values, "run": "live", "topk": "10"})


def reason(name: str) -> str:
    return MAY_BE_EMPTY.get(name) or MAY_BE_EMPTY.get(name.rsplit(" [", 1)[0], "")


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_query_has_data_or_a_reason_why_not(live, target):
    answer = live.ask_target(target)
    assert answer.status == 200 and not answer.said
    if not reason(target.name):
        assert answer.series, live.expand(target.expr)


def test_reasons_are_of_queries_that_are_there():
    known = {target.name for target in TARGETS} | {target.name.rsplit(" [", 1)[0] for target in TARGETS}
    assert set(MAY_BE_EMPTY) <= known


def test_most_of_what_has_a_reason_is_empty_indeed(live):
    """Without a GPU. With one it is there."""
    (source, *_) = live.ask('gradvane_sync_source_info{run="live"}', now=True).series
    if source.labels["source"] in ("cupti", "shared"):
        pytest.skip("host syncs are counted here")
    named = [target for target in TARGETS if reason(target.name)]
    assert [target.name for target in named if live.ask_target(target).series] == []


def test_variables_offer_the_run(live):
    offered = {each["name"]: live.label_values(each["query"]) for board in BOARDS for each in variables(board)
               if each["type"] == "query"}
    assert offered["run"] == ["live"] and offered["rank"] == ["0", "1"] and len(offered["instance"]) == 1
    assert len(offered["group"]) > 2


@pytest.mark.parametrize("name", ["Run starts", "Incidents", "Checkpoints", "Alerts", "Recordings"])
def test_events_are_marked(live, name):
    (event,) = [each for each in events(OVERVIEW) if each["name"] == name]
    answer = live.ask(event["expr"], now=False)
    assert answer.status == 200 and not answer.said and answer.series
    if event.get("useValueForTime"):
        for _, value in answer.series[0].points:
            assert live.window.end - 300 < value / 1000 < live.window.end + 1


def test_the_incident_is_marked_with_where_it_began(live):
    (event,) = [each for each in events(OVERVIEW) if each["name"] == "Incidents"]
    found = [series.labels for series in live.ask(event["expr"], now=False).series]
    (bad,) = [labels for labels in found if labels["class"] == "nonfinite_loss"]
    assert bad["rank"] == "1" and bad["site"] == "loss" and int(bad["step"]) >= 40


def test_a_checkpoint_keeps_its_time(live):
    """A float64 all the way: the annotation stands where it was saved."""
    value = live.ask('gradvane_user_metric{name="checkpoint_timestamp_seconds"}', now=True).only().last
    assert value != round(value) and live.window.end - 60 < value < live.window.end + 1
