"""A poisoned gradient element is seen once, named right, and never poisons what is published."""

import math

import pytest
from training_run import TrainingRun, series

STEP = 50


@pytest.fixture(scope="module")
def parameter(tmp_path_factory):
    """A parameter in the middle of the model, with its group."""
    with TrainingRun(tmp_path_factory.mktemp("names")) as run:
        rows = run.json("/api/v1/params")["params"]
        return rows[len(rows) // 2]


def bad_steps(samples):
    return [(labels, value) for labels, value in series(samples, "gradvane_nonfinite_steps_total")
            if value]


def published_values_are_finite(samples):
    return all(math.isfinite(value) for (name, _), value in samples.items()
               if not name.endswith("_bucket"))


@pytest.mark.parametrize(("kind", "label"), [("nan", "nan"), ("inf", "pos_inf"), ("-inf", "neg_inf")])
def test_a_transient_fault_is_one_bad_step_of_the_right_site_kind_and_group(
        tmp_path, parameter, kind, label):
    name = parameter["name"]
    with TrainingRun(tmp_path, "--fault", f"{kind}@{STEP}:{name},transient") as run:
        run.wait_for(lambda: run.step() > STEP + 30)
        samples = run.samples()
        (labels, value), = bad_steps(samples)
        assert value == 1
        assert (labels["site"], labels["kind"], labels["group"]) == ("grad", label, parameter["group"])
        assert published_values_are_finite(samples)

        row, = [row for row in run.json("/api/v1/params")["params"] if row["name"] == name]
        assert row["first_nonfinite"]["kind"] == label
        assert row["first_nonfinite"]["run_step"] == STEP
        element = row["first_nonfinite"]["element"]
        assert 0 <= element < row["numel"]
    bad = [step for step in run.steps() if "first_nonfinite" in step]
    assert [(step["step"], step["first_nonfinite"]["param"], step["first_nonfinite"]["element"])
            for step in bad] == [(STEP, name, element)]


def test_a_lasting_fault_keeps_its_first_step_parameter_and_element(tmp_path, parameter):
    name = parameter["name"]
    with TrainingRun(tmp_path, "--fault", f"nan@{STEP}:{name}") as run:
        run.wait_for(lambda: run.step() > STEP + 30)
        samples = run.samples()
        status = run.json("/api/v1/status")
        assert published_values_are_finite(samples)
        assert status["nonfinite"]["first"]["run_step"] == STEP
        assert status["nonfinite"]["first"]["param"] == name
        row, = [row for row in run.json("/api/v1/params")["params"] if row["name"] == name]
        assert row["first_nonfinite"]["run_step"] == STEP
        assert row["first_nonfinite"]["element"] == status["nonfinite"]["first"]["element"]
        assert name in run.get("/")
    steps = run.steps()
    after = [step for step in steps if step["step"] > STEP]
    assert all(step["loss"] == "nan" for step in after)
    at, = [step for step in steps if step["step"] == STEP]
    assert at["first_nonfinite"]["param"] == name
    assert math.isfinite(at["loss"])
