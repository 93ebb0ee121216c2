"""The shipped rules in promtool: every alert in every situation."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from cases import OBLIGATORY, Case, Check, Spec, expected  # noqa: E402
from event_cases import EVENTS  # noqa: E402
from pace_cases import pace_specs  # noqa: E402
from presence_cases import presence_specs  # noqa: E402
from state_cases import killed, slow_rank, state_specs  # noqa: E402
from timeline import LENGTH, during, healthy, name, rising, target  # noqa: E402

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", HERE.parents[1]))
PROMTOOL = Path(os.environ["GRADVANE_SERVERS_DIR"]) / "promtool"
RULES = ROOT / "dashboards" / "alerts" / "gradvane-alerts.yaml"
RECORDING = ROOT / "dashboards" / "alerts" / "gradvane-recording.yaml"
SPECS = {spec.alert: spec for spec in (
    *(event.spec() for event in EVENTS), *state_specs(), *presence_specs(), *pace_specs())}


def load(text: str) -> dict:
    return yaml.load(text, yaml.CSafeLoader)


def alerts_in(path: Path) -> list[str]:
    return [rule["alert"] for group in load(path.read_text())["groups"] for rule in group["rules"]]


def one_rule(folder: Path, alert: str, text: str | None = None) -> Path:
    """A rule file with one of the shipped rules: promtool evaluates all that there are at every point in time."""
    rules = load(text or RULES.read_text())
    for group in rules["groups"]:
        group["rules"] = [rule for rule in group["rules"] if rule["alert"] == alert]
        for rule in group["rules"]:  # the link to the runbook has a test of its own
            rule.get("annotations", {}).pop("runbook_url", None)
    rules["groups"] = [group for group in rules["groups"] if group["rules"]]
    path = folder / "rules.yaml"
    path.write_text(json.dumps(rules))
    return path


def promtool_test(folder: Path, rules: Path, tests: list[dict[str, object]]) -> tuple[bool, str]:
    file = folder / "test.yaml"
    file.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "30s", "tests": tests}))  # is YAML
    done = subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True, timeout=120)
    return done.returncode == 0, done.stdout + done.stderr


def as_test(spec: Spec, case: Case) -> dict[str, object]:
    return {
        "name": f"{spec.alert} {case.name}",
        "interval": "30s",
        "input_series": [{"series": key, "values": values} for key, values in case.series.items()],
        "alert_rule_test": [
            {"eval_time": f"{round(check.minute * 60)}s", "alertname": spec.alert,
             "exp_alerts": expected(spec, check)}
            for check in case.checks
        ],
    }


@pytest.mark.parametrize("alert", SPECS)
def test_an_alert_fires_when_it_should_and_only_then(alert, tmp_path):
    spec = SPECS[alert]
    passed, said = promtool_test(tmp_path, one_rule(tmp_path, alert), [as_test(spec, case) for case in spec.cases])
    assert passed, said


def test_every_alert_is_tested_in_every_obligatory_situation():
    shipped = alerts_in(RULES)
    assert sorted(shipped) == sorted(SPECS)
    assert len(set(shipped)) == len(shipped) == 34
    for spec in SPECS.values():
        assert set(OBLIGATORY) <= {case.name for case in spec.cases}, spec.alert


@pytest.mark.parametrize("alert", SPECS)
def test_the_situations_prove_something(alert):
    """Each must fire somewhere and be silent somewhere; the healthy one is silent throughout."""
    for case in SPECS[alert].cases:
        fires = [bool(check.ranks) for check in case.checks]
        if case.name == "healthy":
            assert not any(fires)
        elif case.name in ("zero_initialised", "late_series", "many_ranks"):
            assert any(fires), case.name
        elif case.name in ("clears",):
            assert fires[0] and not fires[-1]


def test_a_healthy_run_fires_nothing_at_all(tmp_path):
    together = {key: values for rank in range(3) for key, values in healthy(rank).items()}
    gauges_are_nan = {**healthy(0), **{name(metric): during((60, "NaN")) for metric in (
        "gradvane_loss", "gradvane_grad_norm", "gradvane_grad_health", "gradvane_loss_scale",
        "gradvane_run_step", "gradvane_last_step_timestamp_seconds")}}
    tests = [as_silent(series, *alerts_in(RULES)) for series in (together, gauges_are_nan)]
    passed, said = promtool_test(tmp_path, RULES, tests)
    assert passed, said


def as_silent(series: dict[str, str], *alerts: str) -> dict[str, object]:
    return {"interval": "30s", "input_series": [{"series": key, "values": values} for key, values in series.items()],
            "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": []}
                                for alert in alerts for minute in (1, 4, 11, 29, 31, 36, 59)]}


def test_one_bad_loss_is_one_alert_though_gradients_follow(tmp_path):
    """What came first is what is told, also when the detector's classes and counters all move."""
    event = next(event for event in EVENTS if event.alert == "GradvaneTrainingLossNonFinite")
    series = event.faulty(0, (10, 0), (50, 1), lasting=((10, 0), (50, 1)))
    passed, said = promtool_test(tmp_path, one_rule(tmp_path, "GradvaneTrainingNonFinite"),
                                 [as_silent(series, "GradvaneTrainingNonFinite")])
    assert passed, said


@pytest.mark.parametrize("before", [0, None], ids=["at_zero", "born_with_the_event"])
def test_a_detector_that_is_off_leaves_the_counters_to_tell(tmp_path, before):
    """A parameter group's counter is born with its first bad step."""
    event = next(event for event in EVENTS if event.alert == "GradvaneTrainingNonFinite")
    series = event.faulty(0, (10, before), (50, 1))
    series[name("gradvane_incidents_total", **{"class": "nonfinite_grad"})] = "0x119"
    series = {key: values for key, values in series.items() if "incident_info" not in key}
    text = "Run gpt, {ranks}: gradients or weights are not finite. Bad steps so far: 1."
    case = Case("off", series, (Check(9.5), Check(10.5, (0,), text)))
    passed, said = promtool_test(tmp_path, one_rule(tmp_path, event.alert), [as_test(event.spec(), case)])
    assert passed, said


COUNTER = 'gradvane_incidents_total{class="grad_exploding"}'
GAUGE = 'gradvane_incidents_open{class="grad_exploding"}'
MEAN = "(rate(gradvane_step_duration_seconds_sum[5m]) / rate(gradvane_step_duration_seconds_count[5m]))"
FAILED = 'gradvane_run_state{state="failed"}'
WORSE_STATES = {
    "every target that is down": ("GradvaneTrainingTargetDown", "up == 0", "ended_by_itself"),
    "a run that is known no more": ("GradvaneTrainingTargetDown", "absent(gradvane_run_info)", "many_ranks"),
    "the state of now": ("GradvaneTrainingRunFailed", f"max without (state) ({FAILED}) == 1", "zero_initialised"),
    "that it ever failed": ("GradvaneTrainingRunFailed", f"max without (state) (max_over_time({FAILED}[10m])) == 1",
                            "counter_restart"),
    "targets that are gone": ("GradvaneRunVanished", 'gradvane_run_state offset 10m unless on (run) gradvane_run_state',
                              "stale_end"),
    "a run of the same job": ("GradvaneRunVanished", 'last_over_time(gradvane_run_state{state="running"}[1h]) == 1'
                              ' unless on (job, run) gradvane_run_state', "job_renamed"),
    "norms that differ": ("GradvaneReplicasDiverged", "gradvane_weight_norm > on (job, run) group_left () 1.01 *"
                          " min by (job, run) (gradvane_weight_norm)", "stages"),
    "less than at first": ("GradvaneThroughputDrop", "rate(gradvane_tokens_total[5m]) < 0.8 *"
                           " max_over_time(rate(gradvane_tokens_total[5m])[1h:1m])", "warm_up"),
    "step times alone": ("GradvaneStragglerRank", f"{MEAN} > on (job, run) group_left () 1.25 * quantile by (job, run) "
                         f"(0.5, {MEAN})", "slow_data"),
    "the mean of the ranks": ("GradvaneStragglerRank", f"{MEAN} > on (job, run) group_left () 1.25 * avg by (job, run) "
                              f"({MEAN})", "nan_gauge"),
}
WORSE = {
    # A rule that people write, and the situation in which it must be found wanting.
    "increase() alone": (f"max without (class) (increase({COUNTER}[5m])) > 0", "late_series"),
    "the gauge alone": (f"max without (class) ({GAUGE}) > 0", "late_series"),
    "what was not there 5 minutes ago":
        (f"max without (class) (increase({COUNTER}[5m])) > 0 or max without (class) ({COUNTER} unless {COUNTER}"
         " offset 5m) > 0", "scrapes_failed"),
    "the counter is not 0": (f"max without (class) ({COUNTER}) > 0", "clears"),
    "a sum of gauge and counter":
        (f"sum without (class) ({GAUGE} + increase({COUNTER}[5m])) > 0", "nan_gauge"),
    "a difference instead of an increase":
        (f"max without (class) ({COUNTER} - {COUNTER} offset 5m) > 0", "restart_and_again"),
    "a difference from the last value known":
        (f"max without (class) (increase({COUNTER}[5m])) > 0 or max without (class) ({COUNTER} - (last_over_time("
         f"{COUNTER}[1h] offset 5m) or {COUNTER} * 0)) > 0", "restarted_while_not_scraped"),
}


@pytest.mark.parametrize("what", WORSE)
def test_a_worse_rule_fails_in_its_situation(what, tmp_path):
    """The control: the situations tell good rules from bad ones."""
    expr, situation = WORSE[what]
    assert not holds_with(tmp_path, SPECS["GradvaneGradientNormExploding"], expr, situation)


@pytest.mark.parametrize("what", WORSE_STATES)
def test_a_worse_rule_on_states_fails_in_its_situation(what, tmp_path):
    alert, expr, situation = WORSE_STATES[what]
    assert not holds_with(tmp_path, SPECS[alert], expr, situation)


def holds_with(folder: Path, spec: Spec, expr: str, situation: str) -> bool:
    """Whether the alert with another expression does what it must in a situation."""
    rules = load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if rule["alert"] == spec.alert:
                rule["expr"] = f"count by (job, run) ({expr})"
    file = one_rule(folder, spec.alert, json.dumps(rules))
    case = next(case for case in spec.cases if case.name == situation)
    test = as_test(spec, case)
    for check in test["alert_rule_test"]:  # type: ignore[attr-defined]
        for alert in check["exp_alerts"]:
            alert["exp_annotations"] = {}  # a rule's expression decides when, and of what
    done, said = promtool_test(folder, without_annotations(file), [test])
    assert done or "exp:" in said, said  # it must be the alerts that differ, not the test that is broken
    return done


def without_annotations(path: Path) -> Path:
    rules = load(path.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations")
    path.write_text(json.dumps(rules))
    return path


@pytest.mark.parametrize("alert", ["GradvaneGradientNormExploding", "GradvaneTrainingTargetDown", "GradvaneStragglerRank"])
def test_the_shipped_rule_holds_where_worse_ones_fail(alert, tmp_path):
    """The control of the control."""
    rules = load(RULES.read_text())
    (expr,) = [rule["expr"] for group in rules["groups"] for rule in group["rules"] if rule["alert"] == alert]
    for case in SPECS[alert].cases:
        assert holds_with(tmp_path, SPECS[alert], expr, case.name), case.name


def test_a_rule_without_the_run_in_common_would_be_an_alert_for_each_rank(tmp_path):
    spec = SPECS["GradvaneGradientNormExploding"]
    rules = load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = f"max without (class) (increase({COUNTER}[5m])) > 0"
    file = without_annotations(one_rule(tmp_path, spec.alert, json.dumps(rules)))
    case = next(case for case in spec.cases if case.name == "many_ranks")
    test = as_test(spec, case)
    for check in test["alert_rule_test"]:  # type: ignore[attr-defined]
        for alert in check["exp_alerts"]:
            alert["exp_annotations"] = {}
    passed, said = promtool_test(tmp_path, file, [test])
    assert not passed and 'rank=\"1\"' in said and 'rank=\"3\"' in said, said


def test_the_first_rank_is_that_of_the_smallest_step_and_then_of_the_smallest_number(tmp_path):
    """As numbers: rank 10 comes after rank 2, and step 1000 after step 999."""
    event = next(event for event in EVENTS if event.alert == "GradvaneGradientNormExploding")
    parts = ((10.0, 0), (50.0, 1))

    def series(*ranks_and_steps: tuple[int, str]) -> dict[str, str]:
        together: dict[str, str] = {}
        for rank, step in ranks_and_steps:
            together |= dataclasses.replace(event, info={**event.info, "step": step}).faulty(rank, *parts)
        return together

    def says(rank: int, step: str) -> str:
        return event.fires(10.5).says.replace("step 120 on rank {first}", f"step {step} on rank {rank}")

    cases = [Case("numbers", series((10, "1000"), (2, "1000")), (Check(10.5, (2, 10), says(2, "1000")),)),
             Case("steps", series((3, "1000"), (7, "999")), (Check(10.5, (3, 7), says(7, "999")),))]
    passed, said = promtool_test(tmp_path, one_rule(tmp_path, event.alert),
                                 [as_test(event.spec(), case) for case in cases])
    assert passed, said


def test_a_runbook_is_at_a_process_that_answers_and_else_in_the_checkout(tmp_path):
    """Rank 0 is killed, then rank 1 as well, then another run."""
    rules = load(RULES.read_text())
    (url,) = [rule["annotations"]["runbook_url"] for group in rules["groups"] for rule in group["rules"]
              if rule["alert"] == "GradvaneTrainingTargetDown"]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "one", "rules": [
        {"alert": "Runbook", "expr": "count by (job, run) (last_over_time(gradvane_run_info{run='gpt'}[1h]))",
         "annotations": {"runbook_url": url}}]}]}))
    other = {key.replace('run="gpt"', 'run="next"'): values for key, values in killed(2, after=50).items()}
    series = killed(0) | killed(1, after=40) | other
    labels = {"job": "gradvane", "run": "gpt"}
    passed, said = promtool_test(tmp_path, file, [{
        "interval": "30s", "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": "Runbook", "exp_alerts": [
                {"exp_labels": labels, "exp_annotations": {"runbook_url": expected_url}}]}
            for minute, expected_url in ((30, "http://host-1:9464/runbooks/training-target-down"),
                                         (45, "http://host-2:9464/runbooks/training-target-down"),
                                         (55, "docs/runbooks/training-target-down.md"))]}])
    assert passed, said


@pytest.mark.parametrize("path", [RULES, RECORDING], ids=lambda path: path.name)
def test_promtool_finds_nothing_to_complain_about(path):
    done = subprocess.run([PROMTOOL, "check", "rules", "--lint=all", "--lint-fatal", path], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_recording_rules_say_what_the_run_does(tmp_path):
    """Against what the pretended run is: 3 seconds a step, 1 in 3 steps per second, and so on."""
    slow = slow_rank(1, "step")
    waits = {name("gradvane_rank_wait_seconds_total", rank): rising(LENGTH, 0, 0 if rank == 1 else 3) for rank in range(3)}
    series = {**healthy(0), **slow, **healthy(2), **waits}
    expected_values = {
        "run_rank:gradvane_steps:rate5m": (1 / 3, 1 / 6),
        "run_rank:gradvane_step_duration_seconds:mean5m": (3, 6),
        "run_rank:gradvane_step_duration_seconds:excess_ratio5m": (0, 1),
        "run_rank:gradvane_data_phase_seconds:per_step5m": (0.1, 0.1),
        "run_rank:gradvane_rank_wait_seconds:ratio_rate5m": (0.1, 0),
        "run_rank:gradvane_own_seconds:per_step5m": (2.7, 6),
        "run_rank:gradvane_step:behind_ratio5m": (0, 1.1),
        "run_rank:gradvane_agent_hooks_seconds:ratio_rate5m": (0.01, 0.01),
        "run_rank:gradvane_host_syncs:per_step5m": (2, 4),
        "run_rank:gradvane_host_sync_seconds:ratio_rate5m": (5 / 30, 5 / 30),
        "run_rank:gradvane_skipped_steps:ratio_rate5m": (0, 0),
        "run:gradvane_step_duration_seconds:median_mean5m": (3,),
        "run:gradvane_tokens:rate5m": (100,),
        "run:gradvane_ranks:count": (3,),
    }
    rules = load(RECORDING.read_text())
    assert {rule["record"] for group in rules["groups"] for rule in group["rules"]} == set(expected_values)
    checks = []
    for record, values in expected_values.items():
        for rank, value in enumerate(values):
            which = f'{{rank="{rank}"}}' if record.startswith("run_rank:") else ""
            # Rates of what rises by thirds end in other bits: three digits will do.
            checks.append({"expr": f"round({record}{which}, 0.001)", "eval_time": "20m", "exp_samples": [
                {"labels": labels_of(record, rank), "value": round(value, 3)}]})
    passed, said = promtool_test(tmp_path, RECORDING, [{
        "interval": "30s", "promql_expr_test": checks,
        "input_series": [{"series": key, "values": values} for key, values in series.items()]}])
    assert passed, said


def labels_of(record: str, rank: int) -> str:
    labels = target(rank) if record.startswith("run_rank:") else {"job": "gradvane", "run": "gpt"}
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
