"""Answers as the agent does, about a synthetic run. python mock_server.py [--scenario NAME] serves one to look at."""

from __future__ import annotations

import argparse
import gzip
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import mock_answers
from mock_run import START, MockRun

CSP = ("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
PLAIN_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Healthy · char_gpt</title>
<link rel="stylesheet" href="/style.css"><script src="/page.js" defer></script>
<link rel="icon" href="data:,">
<noscript><meta http-equiv="refresh" content="5"></noscript></head>
<body><div id="plain"><header><div class="top-line"><span class="run">char_gpt</span></div>
<div class="state-line good"><span class="mark" aria-hidden="true">✓</span><div><h1>Healthy</h1></div></div>
</header></div><div id="app"></div></body></html>
"""


class MockServer:
    """One run on one port; it can be stopped, started anew on that port, and made to refuse events."""

    def __init__(self, run: MockRun, bundle: Path, port: int = 0) -> None:
        self.run = run
        self.bundle = bundle
        self.refuses_events = False
        self.requests: list[str] = []
        self._streams = 0
        self._stopping = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self.port = port
        self.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._stopping = threading.Event()
        owner = self

        class Handler(_Handler):
            mock = owner

        self._server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is None:
            return
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._server.drop_connections()
        self._server = None

    def restart(self, run: MockRun) -> None:
        """Another process takes the port."""
        self.stop()
        self.run = run
        self.start()

    def answer(self, path: str, query: dict[str, str]) -> dict | None:
        run = self.run
        number = {key: int(query[key]) for key in ("since", "limit", "offset", "optimizer") if key in query}
        match path:
            case "/api/v1/status":
                return mock_answers.status(run, number.get("optimizer"))
            case "/api/v1/history":
                return run.history(query.get("resolution", "run"), number.get("since", 0),
                                   number.get("limit", 4096), number.get("optimizer"))
            case "/api/v1/heatmap":
                return run.heat_map(query.get("rows", "groups"), query.get("value", "grad_norm"),
                                    query.get("group", ""), query.get("search", ""), number.get("since", 0),
                                    number.get("limit", 200))
            case "/api/v1/params":
                return mock_answers.params(run, query.get("sort", "index"), query.get("order", ""),
                                           query.get("search", ""), number.get("offset", 0),
                                           number.get("limit", 100_000))
            case "/api/v1/param":
                return mock_answers.param_history(run, query.get("name", ""))
            case "/api/v1/syncs":
                return mock_answers.syncs(run)
            case "/api/v1/ranks":
                return mock_answers.ranks(run, self.address)
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *args: object) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*args)  # type: ignore[arg-type]

    def process_request(self, request, client_address) -> None:  # noqa: ANN001
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request) -> None:  # noqa: ANN001
        self._open.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        """As when a process ends: its connections end with it."""
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def handle_error(self, request, client_address) -> None:  # noqa: ANN001
        """A viewer that goes away in the middle of an answer is no error."""


class _Handler(BaseHTTPRequestHandler):
    mock: MockServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
        self.mock.requests.append(self.path)
        del self.mock.requests[:-1000]
        if url.path == "/":
            return self.reply(200, PLAIN_PAGE.encode(), "text/html; charset=utf-8")
        if url.path in ("/page.js", "/style.css"):
            kind = "text/javascript" if url.path.endswith("js") else "text/css"
            body = (self.mock.bundle / url.path[1:]).read_bytes()
            return self.reply(200, body, f"{kind}; charset=utf-8")
        if url.path == "/api/v1/events":
            return self.events(int(query.get("since", 0)), int(query["optimizer"]) if "optimizer" in query else None)
        answer = self.mock.answer(url.path, query)
        if answer is None:
            return self.reply(404, json.dumps({"error": "there is no such thing"}).encode())
        return self.reply(200, json.dumps(answer).encode())

    def reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        if len(body) > 512:
            body = gzip.compress(body, 1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", CSP)
        self.end_headers()
        self.wfile.write(body)

    def events(self, since: int, optimizer: int | None) -> None:
        if self.mock.refuses_events:
            return self.reply(503, b'{"error": "too many viewers"}')
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(b"retry: 2000\n\n")
        stopping, told, told_at = self.mock._stopping, "", 0.0
        while not stopping.is_set():
            run = self.mock.run
            answer = run.history("steps", since, 1000, optimizer)
            if answer["last"]:
                since = answer["next"]
                self.event("steps", json.dumps(answer), f"{int(run.started * 1000)}-{since}")
            text = json.dumps(mock_answers.status(run, run.leading if optimizer is None else optimizer))
            if text != told and time.monotonic() - told_at >= 1:
                told, told_at = text, time.monotonic()
                self.event("status", text)
            self.wfile.flush()
            stopping.wait(0.25)

    def event(self, name: str, data: str, identity: str = "") -> None:
        mark = f"id: {identity}\n" if identity else ""
        self.wfile.write(f"event: {name}\n{mark}data: {data}\n\n".encode())


def scenarios() -> dict[str, MockRun]:
    started = time.time() - 60
    return {
        "healthy": MockRun(rate=12, step=700, started=started),
        "nan": MockRun(bad=[(120, 121), (500, 560), (650, 10_000)], step=700, rate=2, started=started),
        "past": MockRun(bad=[(300, 360)], spikes=(150, 520), step=700, started=started),
        "many": MockRun(layers=100, params_per_layer=100, step=3000, bad=[(900, 910)], started=started),
        "fast": MockRun(rate=120, step=20_000, started=started),
        "recording": MockRun(recording="run.gvr", bad=[(500, 560)], state="failed",
                             reason="RuntimeError: no more data"),
        "empty": MockRun(is_empty=True, step=0, has_syncs=False),
        "all_nan": MockRun(bad=[(1, 100_000)], step=300),
        "ranks": MockRun(world_size=128, started=START),
        "long": MockRun(step=200_000, bad=[(60_000, 60_000), (90_000, 97_000)], started=started),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="healthy", choices=scenarios())
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--port", type=int, default=9470)
    options = parser.parse_args()
    server = MockServer(scenarios()[options.scenario], options.bundle, options.port)
    print(server.address, flush=True)
    threading.Event().wait()
