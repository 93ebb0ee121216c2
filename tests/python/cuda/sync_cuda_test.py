"""Host syncs of Python programs on a CUDA device: the lines that are to blame, and the profiler beside an agent.

Needs no pytest: `python sync_cuda_test.py`. Without a device it is skipped, with GRADVANE_GPU_TESTS_MUST_RUN=1 it
fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import without_pytest

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parents[1]
STEPS = 12  # of three_syncs.py


def run(*command: object, **extra: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items()
           if not key.startswith("GRADVANE_") and key != "KINETO_USE_DAEMON"}
    package = str(Path(os.environ["GRADVANE_BUILD_DIR"]) / "python")
    env.update(PYTHONPATH=os.pathsep.join([package, env.get("PYTHONPATH", "")]).rstrip(os.pathsep),
               PYTHONDONTWRITEBYTECODE="1", **extra)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, *map(str, command)], cwd=folder, env=env, capture_output=True,
                              text=True, timeout=240)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def marked_lines(script: Path) -> list[int]:
    """Where it says sync 1, sync 2, sync 3: in the order of the time that each should cost."""
    lines = script.read_text().splitlines()
    return [next(number for number, line in enumerate(lines, 1) if line.endswith(f"# sync {i}")) for i in (1, 2, 3)]


ONCE = ("alloc_free", "module_load")  # memory that is kept and code that is loaded: not of every step


def places_of(document: dict, script: Path) -> list[dict]:
    """A script's own lines, most time first. The ledger has a row for each phase of the step."""
    found: dict[int, dict] = {}
    for site in document.get("sites", []):
        if site["origin"] != "training" or Path(site.get("file", "")).name != script.name or site["kind"] in ONCE:
            continue
        place = found.setdefault(site["line"], {"line": site["line"], "seconds": 0.0, "calls": 0, "kinds": set()})
        place["seconds"] += site["seconds"]
        place["calls"] += site["calls"]
        place["kinds"].add(site["kind"])
    return sorted(found.values(), key=lambda place: -place["seconds"])


def test_the_command_names_the_three_lines_in_order_of_time_lost():
    script = TESTS / "scripts" / "three_syncs.py"
    done = run("-m", "gradvane", "syncs", "--json", "--port", "-1", "--", sys.executable, script)
    documents = [each for each in json.loads(done.stdout) if each.get("sites")]
    assert len(documents) == 1, done.stdout + done.stderr
    # An agent of the first step's backward pass missed what came before it.
    places = [place for place in places_of(documents[0], script) if place["calls"] >= STEPS - 1]
    assert [place["line"] for place in places] == marked_lines(script), places
    assert all(place["calls"] <= STEPS for place in places), places
    assert [place["kinds"] for place in places] == [{"d2h_read"}, {"d2h_read"}, {"async_copy_blocked"}], places


def profiler_row(rule: str, order: str) -> dict:
    """What bench/sync/profiler_probe.py saw in a process of its own."""
    gate = {"KINETO_USE_DAEMON": "1"} if rule == "gate" else {}
    done = run(ROOT / "bench" / "sync" / "profiler_probe.py", "--child", rule, order, **gate)
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_the_profiler_sees_the_gpu_during_and_after_an_agent_that_told_it_to_leave_the_subscription():
    plain = profiler_row("none", "agent_first")
    assert plain["during"] > 0 and plain["after"] > 0, plain
    row = profiler_row("gate", "agent_first")
    # Three steps under the profiler: it sees what we read and copy in them, too.
    ours = row["during"] - plain["during"]
    assert 0 <= ours <= 3 * 4 and row["after"] == plain["after"], (row, plain)
    # All but perhaps the first step, of which the beginning may be missing; those under the profiler too.
    assert row["counted"] >= row["steps"] - 1 and row["counted_while_profiling"] == 3, row
    assert row["gaps"] == 0, row


def test_an_agent_that_yields_leaves_the_subscription_to_the_profiler():
    row = profiler_row("yield", "agent_first")
    assert row["during"] > 0 and row["after"] > 0, row
    assert row["counted_while_profiling"] == 0 and row["gaps"] == 1, row


def test_a_profiler_that_was_there_first_goes_on_seeing_the_gpu():
    row = profiler_row("gate", "profiler_first")
    assert row["before"] > 0 and row["during"] > 0 and row["after"] > 0, row


PROTON = """
import torch, gradvane
import triton.profiler as proton
model = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
gradvane.attach(model, optimizer, port=-1, run_dir=".")
def step():
    optimizer.zero_grad()
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
step()
session = proton.start("profile", backend="cupti")
step()
proton.finalize()
step()
"""


def test_proton_that_was_imported_first_works_beside_an_agent():
    done = run("-c", PROTON)
    assert "Traceback" not in done.stderr, done.stderr


def test_a_program_that_ends_while_it_is_counted_ends_as_without_us():
    source = "import torch; x = torch.ones(1000, device='cuda'); print(x.sum().item()); torch.cuda.synchronize()"
    done = run("-m", "gradvane", "syncs", "--json", "--port", "-1", "--", sys.executable, "-c", source)
    (document,) = json.loads(done.stdout)
    assert document["reason"] == "counting" and document["totals"]["training"]["d2h_read"]["calls"] >= 1, document


if __name__ == "__main__":
    sys.exit(without_pytest.run(globals()))
