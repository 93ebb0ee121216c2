"""What a real Alertmanager makes of pushed alerts, and of those that a rule sends besides."""

import datetime
import signal
import time

import pytest
from alertmanager_server import TARGET, Alertmanager, Pusher, Webhook, wait_until


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
    with Pusher(manager.url, "once") as pusher:
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
    with Pusher(manager.url, "short") as pusher:
        pusher.say("open nonfinite_grad 1")
        pusher.say("close nonfinite_grad 1")
        wait_until(lambda: webhook.of("short"), "the notification")
        assert webhook.statuses("short") == ["firing"]
        # As long as the rule's; the close may have gone out with the opening, or a second later.
        wait_until(lambda: 880 < seconds_left(manager.alerts("short")[0]) < 901, "the end to be known")
        assert webhook.statuses("short") == ["firing"]


def test_without_the_rules_windows_it_would_not_be(manager, webhook):
    with Pusher(manager.url, "too-short", windows=(0, 0)) as pusher:
        pusher.say("open nonfinite_grad 1")
        pusher.say("close nonfinite_grad 1")
        pusher.say("finish 5000")
        time.sleep(7)
        assert webhook.statuses("too-short") == []


def push_and_rule(manager, webhook, run, expected, **how):
    """An incident is pushed, Prometheus sees it as well, it closes, the rule goes on. All that was told, once that is
    as expected; for nothing more to come, some time is given."""
    with Pusher(manager.url, run, **how) as pusher:
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
    with Pusher(manager.url, "killed") as pusher:
        pusher.say("open nonfinite_loss 1")
        wait_until(lambda: webhook.of("killed"), "the notification")
        pusher.process.send_signal(signal.SIGKILL)
        (alert,) = manager.alerts("killed")
        assert 180 < seconds_left(alert) < 241


def test_a_run_that_fails_tells_what_was_open_for_a_quarter_of_an_hour(manager, webhook):
    with Pusher(manager.url, "failed") as pusher:
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
        with Pusher(prefixed.url, "prefixed") as pusher:
            pusher.say("open stalled 1")
            pusher.say("finish 10000")
            assert pusher.end()[1:] == (0, "")
        assert len(prefixed.alerts("prefixed")) == 1
        prefixed.url = prefixed.url.removesuffix("/am")  # and without it there is nothing to push to
        with Pusher(prefixed.url, "lost") as pusher:
            pusher.say("open stalled 1")
            pusher.say("finish 10000")
            taken, failed, error = pusher.end()
            assert taken == 0 and failed >= 1 and "404" in error
    finally:
        prefixed.close()
