"""From a fault in a real training to a webhook, through a real Prometheus and a real Alertmanager."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "dashboards")]

from drill import policies  # noqa: E402
from drill.course import Drill, table  # noqa: E402
from drill.faults import FAULTS, Outcome  # noqa: E402


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    package = Path(os.environ["GRADVANE_BUILD_DIR"]) / "python"
    found = Drill(Path(os.environ["GRADVANE_SERVERS_DIR"]), package, tmp_path_factory.mktemp("drill")).run()
    print(table(found))
    return {outcome.fault.name: outcome for outcome in found}


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.alert], ids=lambda fault: fault.name)
def test_a_fault_is_told_once_within_ten_seconds_and_resolved(outcomes, fault):
    outcome = outcomes[fault.name]
    assert outcome.faults() == []
    assert outcome.told == 1 and outcome.told_after is not None and outcome.resolved_after is not None


@pytest.mark.parametrize("name", [fault.name for fault in FAULTS if not fault.alert])
def test_a_run_that_is_well_or_ends_well_fires_nothing(outcomes, name):
    assert outcomes[name].faults() == []


def test_policies_save_a_training_that_is_broken_in_python(tmp_path):
    """The same in C++ is a test of char_gpt."""
    results = policies.run(["python"], Path(os.environ["GRADVANE_BUILD_DIR"]), tmp_path)
    print(policies.table(results))
    assert [result.faults() for result in results] == [[]] * 5


@pytest.mark.parametrize("change, wrong", [
    ({}, None),
    ({"loss": 2.05}, "above the clean run"),
    ({"loss": float("nan")}, "its held-out loss is nan"),
    ({"skipped": 5}, "5 steps were skipped"),
    ({"rollbacks": 1}, "1 rollbacks, not 0"),
    ({"told": 1}, "1 rollbacks in the log, not 0"),
])
def test_the_comparison_of_policies_sees_what_is_wrong(change, wrong):
    good = {"loss": 2.01, "skipped": 6, "rollbacks": 0, "told": 0, "clean": 2.0}
    found = policies.Result(policies.cases_of("python")[2], **{**good, **change}).faults()
    assert found == [] if wrong is None else len(found) == 1 and wrong in found[0]


GOOD = {"step": 7, "told": 1, "told_after": 3.0, "resolved_after": 9.0, "description": "element 13 of body.weight",
        "incident": {"class": "nonfinite_grad", "first_step": 7, "param": "body.weight", "element": 13}}


@pytest.mark.parametrize("change, wrong", [
    ({}, None),
    ({"told": 0, "told_after": None}, "told 0 times"),
    ({"told": 2}, "told 2 times"),
    ({"told_after": 10.1}, "later than 10 s"),
    ({"resolved_after": None}, "never resolved"),
    ({"surprises": ("GradvaneLossSpike",)}, "also fired: GradvaneLossSpike"),
    ({"others": ("loss_spike",)}, "incident of class loss_spike besides"),
    ({"incident": None}, "no incident"),
    ({"incident": {**GOOD["incident"], "param": "head.weight"}}, "names head.weight"),
    ({"incident": {**GOOD["incident"], "element": 12}}, "names element 12"),
    ({"incident": {**GOOD["incident"], "first_step": 8}}, "says step 8"),
    ({"description": "something is wrong"}, "does not name the element"),
    ({"not_run": "no such detector"}, "not run"),
])
def test_the_drill_sees_what_is_wrong(change, wrong):
    """The control: nothing that is amiss passes."""
    found = Outcome(FAULTS[0], **{**GOOD, **change}).faults()
    assert found == [] if wrong is None else len(found) == 1 and wrong in found[0]
