"""What a real Alertmanager makes of pushed alerts, and of those that a rule sends besides."""

import contextlib
import datetime
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PROGRAM = Path(os.environ["GRADVANE_BIN_DIR"]) / "push_program"
SERVERS = Path(os.environ["GRADVANE_SERVERS_DIR"])
AS_SHIPPED = (300, 600)
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
    def __init__(self, folder, webhook, prefix=""):
        self.url = f"http://127.0.0.1:{free_port()}{prefix}"
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
             f"--web.listen-address={self.url.removeprefix('http://').split('/')[0]}"])
        wait_until(self.is_ready, "Alertmanager")

    def is_ready(self):
        assert self.process.poll() is None
        with contextlib.suppress(OSError), urllib.request.urlopen(self.url + "/-/ready", timeout=5) as answer:
            return answer.status == 200
        return False

    def alerts(self, run):
        with urllib.request.urlopen(self.url + "/api/v2/alerts", timeout=10) as answer:
            return [alert for alert in json.load(answer) if alert["labels"]["run"] == run]

    def post_as_prometheus(self, alert):
        request = urllib.request.Request(self.url + "/api/v2/alerts", json.dumps([alert]).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def webhook():
    server = Webhook()
    yield server
    server.shutdown()


@pytest.fixture(scope="module")
def manager(webhook, tmp_path_factory):
    server = Alertmanager(tmp_path_factory.mktemp("alertmanager"), webhook)
    yield server
    server.close()


class Pusher:
    def __init__(self, manager, run, windows=AS_SHIPPED, labels=TARGET):
        self.process = subprocess.Popen(
            [PROGRAM, manager.url, run, *map(str, windows), *(f"{k}={v}" for k, v in labels.items())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

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


def seconds_left(alert):
    ends = datetime.datetime.fromisoformat(alert["endsAt"].replace("Z", "+00:00"))
    return ends.timestamp() - time.time()


def rule_alert(run, **changes):
    """GradvaneTrainingNonFinite as Prometheus sends it, again and again while the rule fires."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"labels": {"alertname": "GradvaneTrainingNonFinite", "severity": "critical", "component": "gradvane", "run": run,
                       **TARGET},
            "annotations": {"summary": "NaN or infinity in gradients or weights", "description": "the rule's"},
            "startsAt": now.isoformat(), "endsAt": (now + datetime.timedelta(minutes=4)).isoformat(),
            "generatorURL": "http://prometheus/graph", **changes}


def test_a_push_fires_once_and_its_end_resolves_it(manager, webhook, record_property):
    with Pusher(manager, "once") as pusher:
        began = time.time()
        pusher.say("open stalled 1")
        wait_until(lambda: webhook.of("once"), "the first notification")
        when, status, labels, annotations = webhook.of("once")[0]
        record_property("seconds_to_webhook", round(when - began, 3))
        print(f"\n{when - began:.2f} s to the webhook, of which group_wait is 0.3 s")
        assert status == "firing"
        assert labels == {"alertname": "GradvaneTrainingStalled", "severity": "critical", "component": "gradvane",
                          "run": "once", **TARGET}
        assert annotations == {"summary": "No optimizer step for long",
                               "description": "Run once, rank 0: incident 1.",
                               "runbook_url": "docs/runbooks/training-stalled.md"}
        for _ in range(50):  # a report of the same is nothing new
            pusher.say("open stalled 1")
        pusher.say("close stalled 1")
        wait_until(lambda: len(webhook.of("once")) > 1, "the end")
        time.sleep(1.5)
        assert webhook.statuses("once") == ["firing", "resolved"]
        pusher.say("finish 5000")
        assert pusher.end() == (2, 0, "")


def test_one_that_was_over_at_once_is_told_all_the_same(manager, webhook):
    with Pusher(manager, "short") as pusher:
        pusher.say("open nonfinite_grad 1")
        pusher.say("close nonfinite_grad 1")
        wait_until(lambda: webhook.of("short"), "the notification")
        assert webhook.statuses("short") == ["firing"]
        # As long as the rule's; the close may have gone out with the opening, or a second later.
        wait_until(lambda: 880 < seconds_left(manager.alerts("short")[0]) < 901, "the end to be known")
        assert webhook.statuses("short") == ["firing"]


def test_without_the_rules_windows_it_would_not_be(manager, webhook):
    with Pusher(manager, "too-short", windows=(0, 0)) as pusher:
        pusher.say("open nonfinite_grad 1")
        pusher.say("close nonfinite_grad 1")
        pusher.say("finish 5000")
        time.sleep(7)
        assert webhook.statuses("too-short") == []


def push_and_rule(manager, webhook, run, expected, **how):
    """An incident is pushed, Prometheus sees it as well, it closes, the rule goes on. All that was told, once that is
    as expected; for nothing more to come, some time is given."""
    with Pusher(manager, run, **how) as pusher:
        pusher.say("open nonfinite_grad 1")
        wait_until(lambda: webhook.of(run), "the first notification")
        starts = rule_alert(run)["startsAt"]
        for _ in range(2):
            manager.post_as_prometheus(rule_alert(run, startsAt=starts))
            time.sleep(1.2)
        pusher.say("close nonfinite_grad 1")
        time.sleep(2.5)
        wait_until(lambda: len(webhook.of(run)) >= min(len(expected), 2), "the end, where there is one")
        manager.post_as_prometheus(rule_alert(run, startsAt=starts))
        time.sleep(2.5)
        wait_until(lambda: len(webhook.of(run)) >= len(expected), "what the rule brings")
        return webhook.statuses(run)


def test_the_push_and_the_rule_are_one_alert_and_one_notification(manager, webhook):
    assert push_and_rule(manager, webhook, "both", ["firing"]) == ["firing"]
    (alert,) = manager.alerts("both")
    assert alert["labels"] == rule_alert("both")["labels"]
    # What Prometheus says last is what counts, so its end is the end.
    now = datetime.datetime.now(datetime.timezone.utc).isoformat()
    manager.post_as_prometheus(rule_alert("both", startsAt=alert["startsAt"], endsAt=now))
    wait_until(lambda: len(webhook.of("both")) > 1, "the end")
    assert webhook.statuses("both") == ["firing", "resolved"]


def test_an_end_before_the_rules_would_make_two_of_one(manager, webhook):
    expected = ["firing", "resolved", "firing"]
    assert push_and_rule(manager, webhook, "flaps", expected, windows=(0, 0)) == expected


def test_other_labels_than_the_rules_would_make_two_of_one(manager, webhook):
    told = push_and_rule(manager, webhook, "two", ["firing", "firing"], labels={"job": "other"})
    assert told.count("firing") > 1
    assert len(manager.alerts("two")) == 2


def test_a_process_that_is_killed_has_told_and_its_alert_ends_by_itself(manager, webhook):
    with Pusher(manager, "killed") as pusher:
        pusher.say("open nonfinite_loss 1")
        wait_until(lambda: webhook.of("killed"), "the notification")
        pusher.process.send_signal(signal.SIGKILL)
        (alert,) = manager.alerts("killed")
        assert 180 < seconds_left(alert) < 241


def test_a_run_that_fails_tells_what_was_open_for_a_quarter_of_an_hour(manager, webhook):
    with Pusher(manager, "failed") as pusher:
        pusher.say("open dead_group 1")
        pusher.say("fail SIGTERM")
        pusher.say("finish 5000")
        taken, failed, error = pusher.end()
        assert taken >= 2 and (failed, error) == (0, "")
    alerts = {alert["labels"]["alertname"]: alert for alert in manager.alerts("failed")}
    assert set(alerts) == {"GradvaneDeadParameterGroup", "GradvaneTrainingRunTerminated"}
    for alert in alerts.values():
        assert 850 < seconds_left(alert) < 901
    assert alerts["GradvaneTrainingRunTerminated"]["annotations"]["description"] == "Run failed, rank 0: SIGTERM."
    wait_until(lambda: len(webhook.of("failed")) == 2, "both notifications")


def test_alertmanager_may_have_a_path_prefix(webhook, tmp_path):
    prefixed = Alertmanager(tmp_path, webhook, "/am")
    try:
        with Pusher(prefixed, "prefixed") as pusher:
            pusher.say("open stalled 1")
            pusher.say("finish 10000")
            assert pusher.end()[1:] == (0, "")
        assert len(prefixed.alerts("prefixed")) == 1
        prefixed.url = prefixed.url.removesuffix("/am")  # and without it there is nothing to push to
        with Pusher(prefixed, "lost") as pusher:
            pusher.say("open stalled 1")
            pusher.say("finish 10000")
            taken, failed, error = pusher.end()
            assert taken == 0 and failed >= 1 and "404" in error
    finally:
        prefixed.close()
