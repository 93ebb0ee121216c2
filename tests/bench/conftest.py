"""The scripts of bench/gpu are importable, and what they change in the environment is undone."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
PACKAGE = Path(os.environ.get("GRADVANE_BUILD_DIR", ROOT / "build" / "release")) / "python"
sys.path[:0] = [str(ROOT / "bench" / "gpu"), str(PACKAGE)]


@pytest.fixture(autouse=True)
def same_environment():
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
