"""Tests that need a GPU: there is one, and its memory and its waits are everybody's."""

import os
import re
from pathlib import Path

BUILD = Path(os.environ["GRADVANE_BUILD_DIR"])
PROPERTIES = re.compile(r"set_tests_properties\(\[=\[(\w+)\]=\] PROPERTIES (.*)\)")


def with_gpu_label() -> dict[str, str]:
    """The properties of each, as CTest reads them."""
    found = {}
    for path in (BUILD / "tests").rglob("CTestTestfile.cmake"):
        for name, properties in PROPERTIES.findall(path.read_text(encoding="utf-8")):
            if ' LABELS "gpu"' in properties:
                found[name] = properties
    return found


def test_no_two_of_them_run_at_a_time():
    tests = with_gpu_label()
    assert len(tests) > 5
    assert [name for name, properties in tests.items() if ' RUN_SERIAL "TRUE"' not in properties] == []
