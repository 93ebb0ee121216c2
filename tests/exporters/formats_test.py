"""What other people's readers make of our output: promtool, prometheus_client, Prometheus itself."""

import gzip
import json
import os
import re
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import jsonschema
import pytest
import referencing
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(os.environ["GRADVANE_SOURCE_DIR"])
SERVER = Path(os.environ["GRADVANE_BIN_DIR"]) / "fake_server"
SERVERS = Path(os.environ["GRADVANE_SERVERS_DIR"])
SCHEMAS = {path.name: json.loads(path.read_text()) for path in (ROOT / "docs/api").glob("*.json")}
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


class Run:
    """A made-up run, served until the test is over."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([SERVER, *map(str, arguments)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://")

    def get(self, path, headers=None):
        request = urllib.request.Request(self.url + path, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.headers, answer.read()

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0


@pytest.fixture(scope="module", params=["healthy", "poisoned", "empty", "failed"])
def run(request):
    arguments = {"healthy": [], "poisoned": ["--poison", 50, "--syncs", "yielded"],
                 "empty": ["--steps", 0],
                 "failed": ["--poison", 3, "--state", "failed", "--layers", 40,
                            "--syncs", "taken"]}[request.param]
    served = Run(*arguments)
    yield served
    served.close()


def validate(name, instance):
    registry = referencing.Registry().with_resources(
        (key, referencing.Resource.from_contents(schema)) for key, schema in SCHEMAS.items())
    jsonschema.Draft202012Validator(SCHEMAS[name], registry=registry).validate(instance)


def series(families):
    """Name and labels of every sample, and its value."""
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families for sample in family.samples}


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_every_schema_is_a_schema(name):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def test_promtool_finds_nothing_to_complain_about(run):
    text = run.get("/metrics")[2]
    checked = subprocess.run([SERVERS / "promtool", "check", "metrics"], input=text,
                             capture_output=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_the_strict_openmetrics_parser_takes_it(run):
    status, headers, body = run.get("/metrics", OPENMETRICS)
    assert status == 200
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    families = list(openmetrics.text_string_to_metric_families(body.decode()))
    kinds = {family.name: family.type for family in families}
    assert kinds["gradvane_steps"] == "counter"
    assert kinds["gradvane_run"] == "info"
    assert kinds["gradvane_step_duration_seconds"] == "histogram"
    assert {f.name: f.unit for f in families}["gradvane_step_duration_seconds"] == "seconds"


def test_an_incident_is_an_exemplar_in_openmetrics_alone():
    run = Run("--poison", 50)
    try:
        text = run.get("/metrics", OPENMETRICS)[2].decode()
        found = {sample.labels["class"]: sample.exemplar for family in openmetrics.text_string_to_metric_families(text)
                 for sample in family.samples if sample.name == "gradvane_incidents_total"}
        assert found["nonfinite_grad"].labels == {"step": "50", "param": "blocks.0.mlp.weight"}
        assert found["nonfinite_grad"].value == 1 and found["nonfinite_grad"].timestamp.sec == 1_700_000_006
        assert [name for name, exemplar in found.items() if exemplar] == ["nonfinite_grad"]
        assert " # " not in run.get("/metrics")[2].decode().replace("# HELP", "").replace("# TYPE", "")
    finally:
        run.close()


def test_a_run_of_many_groups_has_no_series_for_what_never_happened():
    """300 groups on 100 ranks. The counters that stand at 0 would be 180,000 series more."""
    run = Run("--layers", 150, "--poison", 50, "--max-series", 100_000)
    try:
        families = list(text_string_to_metric_families(run.get("/metrics")[2].decode()))
        count = {family.name: len(family.samples) for family in families}
        groups = {sample.labels["group"] for family in families if family.name == "gradvane_group_grad_norm"
                  for sample in family.samples}
        assert len(groups) >= 300
        bad = [sample for family in families if family.name == "gradvane_nonfinite_steps"
               for sample in family.samples if sample.labels["group"] in groups]
        assert [(sample.labels["group"], sample.value) for sample in bad] == [("blocks.0.mlp", 1)]
        of_groups = sum(number for name, number in count.items() if name.startswith("gradvane_group_"))
        assert 100 * (sum(count.values()) - of_groups) < 60_000
    finally:
        run.close()


def test_every_runbook_is_served(run):
    listed = run.get("/runbooks/")[2].decode().split()
    assert listed == sorted(f"/runbooks/{page.stem}" for page in (ROOT / "docs/runbooks").glob("*.md"))
    for path in listed:
        page = (ROOT / "docs" / f"{path[1:]}.md").read_bytes()
        for address in (path, path + ".md"):
            status, headers, body = run.get(address)
            assert (status, body) == (200, page) and headers["Content-Type"] == "text/plain; charset=utf-8"
    assert run.get("/runbooks/no-such")[0] == 404


def test_both_formats_hold_the_same_series_and_values(run):
    ours = {"gradvane_http", "gradvane_scrape", "gradvane_agent_seconds_total"}  # move by being read
    text = series(text_string_to_metric_families(run.get("/metrics")[2].decode()))
    strict = series(openmetrics.text_string_to_metric_families(
        run.get("/metrics", OPENMETRICS)[2].decode()))
    assert text.keys() == strict.keys()
    moved = {key[0] for key in text if text[key] != strict[key]}
    assert all(any(name.startswith(prefix) for prefix in ours) for name in moved), moved


def test_gzip_holds_the_same_bytes(run):
    _, headers, packed = run.get("/style.css", {"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed) == run.get("/style.css")[2]


def test_every_metric_is_in_the_catalogue_with_its_labels(run):
    table = (ROOT / "docs/metrics.md").read_text()
    rows = {}
    for line in table.splitlines():
        if line.startswith("| `"):
            name, kind, _unit, labels = [cell.strip() for cell in line.split("|")[1:5]]
            # Those of several optimizers are not there in a run with one.
            rows[name.strip("`")] = (kind, set(re.findall(r"`(\w+)`(?!, of several)", labels)))
    for family in text_string_to_metric_families(run.get("/metrics")[2].decode()):
        name = family.name + ("_total" if family.type == "counter" else "")
        kind, labels = rows[name]
        assert kind == family.type or (kind == "info" and family.type == "gauge")
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels | {"run", "rank"}


@pytest.mark.parametrize("path,schema", [
    ("/api/v1/status", "status"), ("/api/v1/params", "params"), ("/api/v1/steps", "steps"),
    ("/api/v1/params?sort=worst&limit=3", "params"), ("/api/v1/steps?since=100", "steps"),
    ("/api/v1/syncs", "syncs"), ("/api/v1/syncs?origin=training&limit=2", "syncs"),
    ("/api/v1/params?offset=5&limit=2", "params"), ("/api/v1/param?name=embedding.weight", "param"),
    ("/api/v1/history", "history"), ("/api/v1/history?resolution=steps&limit=50", "history"),
    ("/api/v1/history?optimizer=3", "history"), ("/api/v1/heatmap", "heatmap"),
    ("/api/v1/heatmap?rows=params&value=update_ratio&search=mlp&limit=3", "heatmap"),
    ("/api/v1/ranks", "ranks")])
def test_the_api_answers_as_its_schema_says(run, path, schema):
    status, headers, body = run.get(path)
    assert status == 200 and headers["Content-Type"] == "application/json"
    validate(f"{schema}.schema.json", json.loads(body))


def test_columns_are_of_one_length(run):
    for path in ("/api/v1/history", "/api/v1/history?resolution=steps"):
        history = json.loads(run.get(path)[2])
        columns = [history[key] for key in ("first", "last", "time", "skipped")]
        columns += [*history["nonfinite"].values(), *(part for one in history["series"].values() for part in one.values())]
        assert {len(column) for column in columns} == {len(history["first"])}
    heatmap = json.loads(run.get("/api/v1/heatmap")[2])
    assert len(heatmap["values"]) == len(heatmap["names"])
    assert {len(row) for row in heatmap["values"]} == {len(heatmap["first"])}


def test_events_bring_what_the_other_addresses_give(run):
    with urllib.request.urlopen(run.url + "/api/v1/events", timeout=30) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert stream.readline() == b"retry: 2000\n" and stream.readline() == b"\n"
        assert stream.readline() == b"event: status\n"
        told = json.loads(stream.readline().removeprefix(b"data: "))
        validate("status.schema.json", told)
        assert "groups" not in told
        assert stream.readline() == b"\n"
        status = json.loads(run.get("/api/v1/status")[2])
        assert "groups" in status
        if status["steps"] == 0:
            return
        started, cursor = stream.readline().removeprefix(b"id: ").split(b"-")
        assert stream.readline() == b"event: steps\n"
        steps = json.loads(stream.readline().removeprefix(b"data: "))
        validate("history.schema.json", steps)
        assert steps["last"][-1] == status["latest"]["run_step"] and steps["next"] == int(cursor)
        assert int(started) == round(steps["started"] * 1000)


def test_a_refused_query_answers_as_its_schema_says(run):
    status, _, body = run.get("/api/v1/params?sort=nothing")
    assert status == 400
    validate("error.schema.json", json.loads(body))


def test_host_syncs_are_there_where_they_were_ever_counted(run, request):
    counted = {"healthy": True, "poisoned": True, "empty": False, "failed": False}[
        request.node.callspec.params["run"]]
    answer = json.loads(run.get("/api/v1/syncs")[2])
    for key in ("totals", "by_phase", "polls", "sites"):
        assert (key in answer) == counted, key
    names = {family.name for family in text_string_to_metric_families(run.get("/metrics")[2].decode())}
    for name in ("host_syncs", "host_sync_seconds", "host_sync_location_seconds", "device_polls",
                 "sync_budget"):
        assert (f"gradvane_{name}" in names) == counted, name
    assert {"gradvane_sync_source_info", "gradvane_sync_coverage_seconds"} <= names


def test_the_schema_of_host_syncs_notices_what_does_not_belong():
    run = Run()
    answer = json.loads(run.get("/api/v1/syncs")[2])
    run.close()
    site = answer["sites"][0]
    for broken in ({**answer, "source": "guess"}, {**answer, "extra": 1},
                   {key: value for key, value in answer.items() if key != "polls"},
                   {**answer, "totals": {"training": {}, "gradvane": {}}},
                   {**answer, "sites": [{**site, "kind": "long"}]},
                   {**answer, "sites": [{key: value for key, value in site.items() if key != "id"}]}):
        with pytest.raises(jsonschema.ValidationError):
            validate("syncs.schema.json", broken)


def test_the_schemas_notice_what_does_not_belong(run):
    answer = json.loads(run.get("/api/v1/status")[2])
    for broken in ({**answer, "state": "fine"}, {**answer, "extra": 1},
                   {key: value for key, value in answer.items() if key != "incidents"}):
        with pytest.raises(jsonschema.ValidationError):
            validate("status.schema.json", broken)


def test_the_files_of_a_run_are_as_their_schemas_say(tmp_path):
    run = Run("--poison", 50, "--dir", tmp_path)
    validate("endpoint.schema.json", endpoint := json.loads((tmp_path / "endpoint.rank0.json").read_text()))
    assert (endpoint["url"], endpoint["state"]) == (run.url, "running")
    run.close()
    assert json.loads((tmp_path / "endpoint.rank0.json").read_text())["state"] == "finished"
    lines = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    for line in lines:
        validate("step.schema.json", line)
    assert [line["run_step"] for line in lines] == list(range(1, 121))
    assert [line["run_step"] for line in lines if "first_nonfinite" in line] == [50]


def test_the_page_about_the_step_log_knows_every_key():
    page = (ROOT / "docs/step-log.md").read_text()
    documented = {key for row in page.splitlines() if row.startswith("| `")
                  for key in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert documented == set(SCHEMAS["step.schema.json"]["properties"])
    example = json.loads(re.search(r"```json\n(.*?)\n```", page, re.DOTALL).group(1))
    validate("step.schema.json", example)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_prometheus_scrapes_it(tmp_path):
    run = Run("--poison", 50, "--live", 50)
    port = free_port()
    (tmp_path / "prometheus.yml").write_text(f"""
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: gradvane
    static_configs: [{{targets: ["{run.url.removeprefix('http://')}"]}}]
""")
    prometheus = subprocess.Popen(
        [SERVERS / "prometheus", f"--config.file={tmp_path}/prometheus.yml",
         f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}",
         "--enable-feature=exemplar-storage", "--log.level=error"])

    def query(expression):
        url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.request.quote(expression)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return [float(r["value"][1]) for r in json.load(answer)["data"]["result"]]

    try:
        # Any one of them may be missing for a moment, where a scrape was slow; a wrong one never comes right.
        expected = {"rate(gradvane_steps_total[5s]) > bool 0": [1],
                    "up": [1],
                    'gradvane_nonfinite_steps_total{site="grad",kind="nan",group="blocks.0.mlp"}': [1],
                    "sum(gradvane_nonfinite_steps_total)": [1],
                    'gradvane_run_info{rank="0"} * on(run, rank) gradvane_run_step > bool 120': [1],
                    "vector(scalar(scrape_samples_scraped) == bool scalar(gradvane_series))": [1]}
        deadline = time.monotonic() + 60
        seen = {}
        while seen != expected and time.monotonic() < deadline:
            time.sleep(0.2)
            try:
                seen = {expression: query(expression) for expression in expected}
            except OSError:
                continue  # it is still starting
        assert seen == expected
        url = (f"http://127.0.0.1:{port}/api/v1/query_exemplars?query=gradvane_incidents_total"
               "&start=1600000000&end=2000000000")
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = [exemplar["labels"] for series in json.load(answer)["data"] for exemplar in series["exemplars"]]
        assert found == [{"step": "50", "param": "blocks.0.mlp.weight"}]
    finally:
        prometheus.terminate()
        prometheus.wait(timeout=30)
        run.close()
