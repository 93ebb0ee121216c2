"""A real Alertmanager, a webhook that it notifies, and a program that pushes."""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROGRAM = Path(os.environ["GRADVANE_BIN_DIR"]) / "push_program"
SERVERS = Path(os.environ["GRADVANE_SERVERS_DIR"])
AS_SHIPPED = (300, 600)
"""seconds: the windows of the rules"""
TARGET = {"job": "training"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, what, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.02)


class Webhook(ThreadingHTTPServer):
    """Remembers every alert of every notification."""

    def __init__(self):
        self.notices = []
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.notices.append((time.time(), body["alerts"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    def of(self, run):
        """(when, status, labels, annotations) of each alert of the run, a notification after the other"""
        return [(when, alert["status"], alert["labels"], alert["annotations"])
                for when, alerts in list(self.notices) for alert in alerts if alert["labels"]["run"] == run]

    def statuses(self, run):
        return [status for _, status, _, _ in self.of(run)]


def alertmanager_command():
    """Debian's looks for its templates under /usr/share; unpacked and not installed, it is shown them there."""
    program, shared = SERVERS / "alertmanager", SERVERS.parent / "share"
    template = "prometheus/alertmanager/default.tmpl"
    if Path("/usr/share", template).exists() or not (shared / template).exists():
        return [program]
    return ["unshare", "--map-root-user", "--mount", "sh", "-c",
            'mount --bind "$0" /usr/share && exec "$@"', shared, program]


class Alertmanager:
    def __init__(self, folder, webhook, prefix="", web_config=None, is_asked=urllib.request.urlopen):
        """`web_config`: a file. `is_asked`: as urlopen, by who may read it."""
        self.url = f"{'https' if web_config else 'http'}://127.0.0.1:{free_port()}{prefix}"
        self.is_asked = is_asked
        config = folder / "alertmanager.yml"
        config.write_text(json.dumps({  # JSON is YAML
            "route": {"receiver": "webhook", "group_by": ["alertname", "run"], "group_wait": "300ms",
                      "group_interval": "1s", "repeat_interval": "1h",
                      "routes": [{"matchers": ['run="too-short"'], "group_wait": "5s"}]},
            "receivers": [{"name": "webhook", "webhook_configs": [
                {"url": f"http://127.0.0.1:{webhook.server_address[1]}/", "send_resolved": True}]}]}))
        self.process = subprocess.Popen(
            [*alertmanager_command(), f"--config.file={config}", f"--storage.path={folder}/data",
             "--cluster.listen-address=", "--log.level=error", f"--web.route-prefix={prefix or '/'}",
             f"--web.listen-address={self.url.split('/')[2]}", *([f"--web.config.file={web_config}"] if web_config else [])])
        wait_until(self.is_ready, "Alertmanager")

    def is_ready(self):
        assert self.process.poll() is None
        with contextlib.suppress(OSError), self.is_asked(self.url + "/-/ready", timeout=5) as answer:
            return answer.status == 200
        return False

    def alerts(self, run):
        with self.is_asked(self.url + "/api/v2/alerts", timeout=10) as answer:
            return [alert for alert in json.load(answer) if alert["labels"]["run"] == run]

    def post_as_prometheus(self, alert):
        request = urllib.request.Request(self.url + "/api/v2/alerts", json.dumps([alert]).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=30)


class Pusher:
    """push_program."""

    def __init__(self, url, run, windows=AS_SHIPPED, labels=TARGET, **environment):
        self.process = subprocess.Popen(
            [PROGRAM, url, run, *map(str, windows), *(f"{k}={v}" for k, v in labels.items())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def say(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def end(self):
        """Pushes taken, pushes not taken, the latest error."""
        taken, failed, error = self.process.communicate(timeout=30)[0].split(" ", 2)
        assert self.process.returncode == 0
        return int(taken), int(failed), error.strip()
