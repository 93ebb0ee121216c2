"""dashboards/verify-grafana.sh against a server that only pretends to be a Grafana: its requests, and its way with
faults. A real Grafana was not at hand, and this says nothing of one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
SCRIPT = ROOT / "dashboards" / "verify-grafana.sh"
pytestmark = pytest.mark.skipif(not (shutil.which("jq") and shutil.which("curl")), reason="no jq or curl here")


class Pretended:
    """What the server answers, and what it was asked."""

    def __init__(self) -> None:
        self.token = "Bearer secret"
        self.sources = [{"uid": "loki1", "type": "loki"}, {"uid": "prom1", "type": "prometheus"}]
        self.runs = ["gpt \"x\""]
        self.provisioned = False
        self.refuses: str = ""
        """a query with this in it fails"""
        self.broken = False
        """no query is answered"""
        self.boards: dict[str, dict] = {}
        self.queries: list[dict] = []

    def answer(self, method: str, path: str, token: str, body: dict) -> tuple[int, object]:
        if path == "/api/health":
            return 200, {"version": "12.3.4", "database": "ok"}
        if token != self.token:
            return 401, {"message": "Unauthorized"}
        if path == "/api/datasources":
            return 200, self.sources
        if path == "/api/datasources/uid/prom1/resources/api/v1/label/run/values":
            return 200, {"status": "success", "data": self.runs}
        if (method, path) == ("POST", "/api/dashboards/db"):
            if self.provisioned:
                self.boards[body["dashboard"]["uid"]] = body["dashboard"]
                return 400, {"message": "Cannot save provisioned dashboard"}
            assert body["overwrite"] is True
            self.boards[body["dashboard"]["uid"]] = body["dashboard"]
            return 200, {"status": "success"}
        if path.startswith("/api/dashboards/uid/"):
            found = self.boards.get(path.rsplit("/", 1)[1])
            return (200, {"dashboard": found}) if found else (404, {"message": "Dashboard not found"})
        if (method, path) == ("POST", "/api/ds/query") and self.broken:
            return 502, {"message": "Bad gateway"}
        if (method, path) == ("POST", "/api/ds/query"):
            results = {}
            for query in body["queries"]:
                self.queries.append(query)
                if self.refuses and self.refuses in query["expr"]:
                    results[query["refId"]] = {"error": "bad_data: parse error", "status": 400}
                else:
                    values = [] if "gradvane_loss{" in query["expr"] else [[1], [2]]
                    results[query["refId"]] = {"frames": [{"data": {"values": values}}]}
            assert len(results) == len(body["queries"])
            return 400 if self.refuses else 200, {"results": results}
        return 404, {"message": "Not found"}


@pytest.fixture
def grafana():
    pretended = Pretended()

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            status, said = pretended.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
            text = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = handle_one

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pretended.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield pretended
    server.shutdown()
    server.server_close()


def verify(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})


def boards() -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((ROOT / "dashboards" / "grafana").glob("*.json"))]


def test_every_dashboard_is_uploaded_and_every_query_asked(grafana):
    done = verify(grafana.url + "/", "secret")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Grafana 12.3.4" in done.stdout and "data source prom1, run gpt \"x\"" in done.stdout
    assert sorted(grafana.boards) == [board["uid"] for board in boards()]
    panels = [panel for board in boards() for each in board["panels"] for panel in (each.get("panels") or [each])
              if panel["type"] != "row"]
    assert len(grafana.queries) == sum(len(panel["targets"]) for panel in panels) > 120
    for query in grafana.queries:
        assert query["datasource"] == {"type": "prometheus", "uid": "prom1"} and query["instant"] != query["range"]
        left = re.sub(r"\$__(rate_interval|range|interval)", "", query["expr"])
        assert not re.search(r"\$\D", left)  # $1 is label_replace's
        if "run=" in left:
            assert r'run="gpt \"x\""' in left
    assert "no data  Loss [A]" in done.stdout


def test_a_query_that_fails_is_told_and_the_others_are_asked_all_the_same(grafana):
    grafana.refuses = "histogram_quantile(0.9,"
    done = verify(grafana.url, GRAFANA_TOKEN="secret")
    assert done.returncode == 1 and "1 failures" in done.stderr
    assert "  FAILED   Step time [B]: bad_data: parse error" in done.stdout
    assert len(grafana.queries) > 120


def test_queries_that_are_not_answered_at_all_are_told(grafana):
    grafana.broken = True
    done = verify(grafana.url, "secret")
    assert done.returncode == 1 and "6 failures" in done.stderr
    assert done.stdout.count("  FAILED   all of its queries: status 502 Bad gateway") == 6


def test_dashboards_that_were_provisioned_are_only_asked(grafana):
    grafana.provisioned = True
    done = verify(grafana.url, "secret")
    assert done.returncode == 0 and "gradvane-fleet: provisioned, " in done.stdout, done.stdout + done.stderr


def test_user_and_password_will_do(grafana):
    grafana.token = "Basic YWRtaW46cGFzcw=="
    grafana.runs = []
    done = verify(grafana.url, "admin:pass")
    assert done.returncode == 1 and "knows no run" in done.stderr


@pytest.mark.parametrize("change, arguments, said", [
    ({}, ["wrong"], "status 401 Unauthorized"),
    ({"sources": []}, ["secret"], "no Prometheus data source"),
    ({}, ["secret", "more"], "usage"),
])
def test_what_is_missing_is_said(grafana, change, arguments, said):
    for key, value in change.items():
        setattr(grafana, key, value)
    done = verify(grafana.url, *arguments)
    assert done.returncode == 1 and said in done.stderr


def test_a_server_that_is_not_there_is_told():
    done = verify("http://127.0.0.1:9")
    assert done.returncode == 1 and "does not answer" in done.stderr


def test_it_says_that_it_was_never_run_against_a_real_one():
    text = " ".join((ROOT / "docs" / "dashboards.md").read_text().split())
    assert "It has never been run against a real Grafana" in text
