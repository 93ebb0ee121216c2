"""A skipped case is reported, whichever framework skipped it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ.get("GRADVANE_SOURCE_DIR", Path(__file__).resolve().parents[1]))

LOG = """\
1/3 Testing: ring_test
[ RUN      ] Ring.IsMapped
./tests/ring_test.cpp:12: Skipped
there is no /dev/shm
[  SKIPPED ] Ring.IsMapped (0 ms)
[ RUN      ] Ring.IsLocked
./tests/ring_test.cpp:20: Skipped

[  SKIPPED ] Ring.IsLocked (0 ms)
[       OK ] Ring.Turns (0 ms)
[  PASSED  ] 1 test.
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] Ring.IsMapped
[  SKIPPED ] Ring.IsLocked
2/3 Testing: hosts_test
SKIPPED [3] ../tests/hosts_test.py:62: this user may make no namespaces
SKIPPED [1] ../tests/flops_test.py: could not import 'transformers'
3/3 Testing: good_test
12 passed in 0.10s
"""


def said(log: str, folder: Path) -> list[str]:
    (folder / "log").write_text(log)
    command = [sys.executable, ROOT / "scripts" / "skipped.py", folder / "log"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_each_skipped_case_is_counted_once_with_its_reason(tmp_path):
    assert said(LOG, tmp_path) == [
        "Skipped cases: 6, which say nothing about what they test:", "  1 of hosts_test: could not import 'transformers'",
        "  3 of hosts_test: this user may make no namespaces", "  1 of ring_test: no reason given",
        "  1 of ring_test: there is no /dev/shm"]


def test_a_run_without_any_says_so(tmp_path):
    assert said("1/1 Testing: good_test\n12 passed in 0.10s\n", tmp_path) == ["Skipped cases: 0"]


def test_what_pytest_and_googletest_print_here_is_understood(tmp_path):
    """So that a new version of either is not a run without skipped cases."""
    (tmp_path / "one_test.py").write_text("import pytest\n\n\ndef test_one():\n    pytest.skip('of no use here')\n")
    done = subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "one_test.py"],
                          cwd=tmp_path, capture_output=True, text=True)
    assert said(f"1/1 Testing: one\n{done.stdout}", tmp_path)[1:] == ["  1 of one: of no use here"]
    program = Path(os.environ["GRADVANE_BIN_DIR"]) / "exporters_files_test"
    too_few = "ulimit -n 16; exec \"$0\" --gtest_filter=OwnDescriptor.IsRefusedWhereThereAreTooMany"
    done = subprocess.run(["sh", "-c", too_few, program], capture_output=True, text=True)
    assert said(f"1/1 Testing: two\n{done.stdout}", tmp_path)[1:] == ["  1 of two: this process may not open so many files"]
