"""A receiver for Alertmanager's webhooks that remembers what came, and when."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


@dataclass(frozen=True)
class Notice:
    """One alert in one notification."""

    at: float
    """seconds since the epoch"""
    status: str
    """firing or resolved"""
    labels: dict[str, str]
    annotations: dict[str, str]
    fingerprint: str
    starts_at: str


class Webhook:
    """`with Webhook() as hook:` listens at hook.url."""

    def __init__(self, port: int = 0) -> None:
        self._notices: list[Notice] = []
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                receiver._take(json.loads(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def _take(self, message: dict[str, object]) -> None:
        now = time.time()
        alerts = message["alerts"]
        assert isinstance(alerts, list)
        with self._lock:
            self._notices += [Notice(now, alert["status"], alert["labels"], alert["annotations"],
                                     alert["fingerprint"], alert["startsAt"]) for alert in alerts]

    def notices(self, run: str = "") -> list[Notice]:
        with self._lock:
            return [notice for notice in self._notices if not run or notice.labels.get("run") == run]

    def __enter__(self) -> Webhook:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
