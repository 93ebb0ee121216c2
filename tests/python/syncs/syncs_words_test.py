"""What `gradvane syncs` makes of a command and of reports, without running anything."""

import copy
import io
import os
import re
import sys

import pytest
import running

sys.path.insert(0, str(running.PACKAGE))

from gradvane.cli import injection, python_command, sync_layout, sync_reports, sync_tables  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402

PY = sys.executable
RUN = ["-m", "gradvane", "run", "--quiet"]


@pytest.mark.parametrize(("options", "target"), [
    ([], ["train.py", "-c", "x"]), (["-u", "-Xfaulthandler", "-X", "dev"], ["train.py"]), (["-W", "error", "-OO"], ["a/b.py", "--m"]),
    (["-uB"], ["-m", "pkg.train", "-x"]), (["--check-hash-based-pycs", "never"], ["folder"]),
])
def test_a_python_script_is_run_by_gradvane_run(options, target):
    assert python_command.watched([PY, *options, *target]) == [PY, *options, *RUN, *target]


def test_a_module_may_hang_on_its_option():
    assert python_command.watched([PY, "-mtrain", "1"]) == [PY, *RUN, "-m", "train", "1"]


@pytest.mark.parametrize("words", [
    [PY], [PY, "-c", "1"], [PY, "-i", "a.py"], [PY, "-uc", "1"], [PY, "-"], [PY, "-V"], [PY, "--version"], [PY, "-m"], [PY, "-W"],
    ["sh", "a.py"], ["/no/such/python3", "a.py"], ["pythonic", "a.py"], [PY, "-I", "a.py"], [],
])
def test_what_is_no_script_of_a_python_that_knows_us_is_left_as_it_is(words):
    # -I hides this package, which is on PYTHONPATH alone.
    assert python_command.watched(words) is None


def test_whoever_watches_already_is_known():
    assert python_command.is_watched_already(["/opt/bin/gradvane", "run", "a.py"])
    assert python_command.is_watched_already([PY, "-u", "-m", "gradvane", "run", "a.py"])
    assert not python_command.is_watched_already([PY, "-m", "gradvane", "top"])
    assert python_command.is_launcher([PY, "-m", "torch.distributed.run", "a.py"])
    assert not python_command.is_launcher([PY, "torch.distributed.run"]) and not python_command.is_launcher([PY])


def test_a_launchers_children_keep_their_endpoints(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_INJECTION64_PATH", raising=False)
    how = {"library": None, "budget": None, "port": None}
    launch = injection.prepare([PY, "-m", "torch.distributed.run", "a.py"], str(tmp_path), **how)
    assert launch.command[2] == "torch.distributed.run" and "GRADVANE_INJECT_ENDPOINT" not in launch.environment
    launch = injection.prepare([PY, "-m", "gradvane", "run", "a.py"], str(tmp_path), **how)
    assert launch.command[2:] == ["gradvane", "run", "a.py"] and launch.environment["GRADVANE_INJECT_ENDPOINT"] == "off"
    assert launch.is_injected and not {"GRADVANE_SYNC_BUDGET", "GRADVANE_SYNC_PROFILER"} & launch.environment.keys()


def test_a_libcupti_comes_from_a_wheel_where_the_loader_finds_none(tmp_path, monkeypatch):
    def library(command, given=None):
        env = injection.prepare(command, str(tmp_path), library=given, budget=None, port=None).environment
        assert env.get("GRADVANE_SYNC_LIBRARY") == given  # that one would outdo the process's own
        return env.get("GRADVANE_SYNC_LIBRARY_ELSE")

    monkeypatch.delenv("GRADVANE_SYNC_LIBRARY", raising=False)
    monkeypatch.delenv("GRADVANE_SYNC_LIBRARY_ELSE", raising=False)
    (tmp_path / "nvidia/cuda_cupti/lib").mkdir(parents=True)
    (tmp_path / "nvidia/cuda_cupti/lib/libcupti.so.12").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.setattr(injection, "loader_finds_one", lambda environment: False)
    found = library(["./program"])
    assert found and found.endswith(("nvidia/cuda_cupti/lib/libcupti.so.12", "nvidia/cu13/lib/libcupti.so.13"))
    assert library([PY, "a.py"]) == found
    assert library(["./program"], given="/opt/libcupti.so.13") is None
    assert library(["/opt/other/bin/python3", "a.py"]) is None  # it has its own
    monkeypatch.setattr(injection, "loader_finds_one", lambda environment: True)
    assert library(["./program"]) is None


def test_the_loaders_own_paths_come_first(tmp_path):
    assert not injection.loader_finds_one({"LD_LIBRARY_PATH": str(tmp_path)}) or os.path.exists("/etc/ld.so.conf.d")
    (tmp_path / "libcupti.so.13").touch()
    assert injection.loader_finds_one({"LD_LIBRARY_PATH": f"/nowhere:{tmp_path}"})


def site(line, kind, calls, blocked, origin="training", phase="forward"):
    return {"id": line, "kind": kind, "origin": origin, "location": f"a.py:{line}", "file": "/x/a.py", "line": line, "phase": phase,
            "function": "f", "stack": [], "thread": "t", "calls": calls, "calls_in_steps": calls - 1, "seconds": blocked, "max_seconds": blocked}


COUNTED = {
    "run": "gpt", "rank": 0, "source": "cupti", "reason": "counting", "covered_seconds": 10.0, "blind_seconds": 0.0, "gaps": 0,
    "steps": 20, "whole_steps": 19, "budget": 3, "own_budget": 0, "steps_over": {"training": 0, "gradvane": 0},
    "most_in_step": {"calls": 2, "run_step": 13}, "dropped": {"threads": 0, "sites": 0, "events": 0, "unbalanced": 0},
    "totals": {"training": {"d2h_read": {"calls": 40, "seconds": 2.0}, "rejected_in_capture": {"calls": 3, "seconds": 0.1}},
               "gradvane": {"event": {"calls": 20, "seconds": 0.01}}, "profiler": {"device": {"calls": 2, "seconds": 0.5}}},
    "parts": {"in_steps": {"calls": 37, "seconds": 1.9}, "start_up": {"calls": 3, "seconds": 0.1},
              "between_steps": {"calls": 0, "seconds": 0.0}, "other_threads": {"calls": 0, "seconds": 0.0}},
    "by_phase": {}, "polls": {"training": {"calls": 14_000, "seconds": 0.01}},
    "sites": [site(7, "d2h_read", 20, 1.0), site(7, "d2h_read", 15, 0.75, phase="data"), site(9, "d2h_read", 5, 0.25),
              site(11, "rejected_in_capture", 3, 0.1), site(1, "event", 20, 0.01, "gradvane"), site(2, "device", 2, 0.5, "profiler")],
}
NEVER = {key: COUNTED[key] for key in ("run", "rank", "covered_seconds", "blind_seconds", "gaps", "own_budget", "steps_over", "dropped")}
NEVER.update(source="none", reason="taken", detail="by nsys", steps=0, whole_steps=0)


def report(base=COUNTED, pid=1, **changes):
    document = copy.deepcopy(base)
    document.update(changes)
    return sync_reports.Report(pid, {key: value for key, value in document.items() if value is not None})


def told(*reports, top=20):
    to = Console(file=io.StringIO(), width=1000, highlight=False)
    for one in reports:
        sync_tables.show(to, one, top=top, has_budget=False)
    return [" ".join(line.split()) for line in to.file.getvalue().splitlines() if line.strip()]


def test_a_table_is_of_the_training_alone_and_the_rest_stands_below():
    assert told(report()) == [
        "gpt, pid 1: 20 steps, 40 host syncs, 1.947 per step, the CPU blocked for 2 s in all, 14,000 polls",
        "site kind calls calls per step time blocked share of wall time",
        "a.py:7 f d2h_read 35 1.737 1.75 s 17.5 %",
        "a.py:9 f d2h_read 5 0.2105 250 ms 2.5 %",
        "in no step: 3 before the first step ended, 100 ms",
        "Gradvane's own: 20 host syncs, 10 ms; budget 0 per step, no step had more",
        "PyTorch's profiler's own: 2 host syncs, 500 ms",
        "3 calls refused during a graph capture, which did not wait: a.py:11",
        "within the budget of 3 per step: at most 2, in step 13",
    ]
    kinds = {"d2h_read": {"calls": 1, "seconds": 1.0}, "alloc_free": {"calls": 1, "seconds": 1.0}, "module_load": {"calls": 1, "seconds": 1.0}}
    assert told(report(totals={"training": kinds}))[-1] == "alloc_free, module_load: such a call only may wait, so it spends no budget"
    assert told(report(), top=1)[3] == "1 more place 5 0.2105 250 ms 2.5 %"


def test_what_was_not_measured_is_no_zero():
    assert told(report(NEVER, rank=3)) == [
        "gpt, rank 3, pid 1: host syncs were not counted: another tool has the one CUPTI subscription of this process (by nsys)"]
    lines = told(report(steps=0, whole_steps=0, budget=None, most_in_step=None, covered_seconds=0.0))
    assert lines[2] == "a.py:7 f d2h_read 35 1.75 s" and "calls per step are not known" in lines[-1]


def test_what_was_left_out_is_said():
    lost = told(report(gaps=2, blind_seconds=75.0, dropped={"threads": 1, "sites": 2, "events": 3, "unbalanced": 4}, source="none",
                       reason="lost"))
    assert "at the end host syncs were not counted any more: CUPTI does not call Gradvane back any more" in lost
    assert "not counted: 1 min 15 s beside the 10 s that were counted, counting stopped 2 times" in lost
    assert [line[:2] for line in lost if line[0].isdigit() and line[1] == " "][:4] == ["1 ", "2 ", "3 ", "4 "]


def test_what_is_next_to_nothing_is_neither_a_zero_nor_worth_a_line():
    lines = told(report(blind_seconds=0.009, sites=[site(7, "d2h_read", 20, 0.004), site(8, "d2h_read", 20, 0.0), site(9, "d2h_read", 20, 0.006)]))
    assert [line.split(" ms ")[-1].split(" us ")[-1] for line in lines[2:5]] == ["0.1 %", "< 0.1 %", "0.0 %"]
    assert not any("not counted" in line for line in lines)
    assert not any("not counted" in line for line in told(report(blind_seconds=0.0009, covered_seconds=0.01)))
    assert any("not counted: 11 ms" in line for line in told(report(blind_seconds=0.011)))


def test_kinds_that_spend_no_budget_are_those_that_the_agent_leaves_out():
    header = (running.TESTS.parents[1] / "record" / "step_record.hpp").read_text()
    kinds = re.findall(r"^  (\w+),", header[header.index("enum class SyncKind"):header.index("kSyncKinds")], re.M)
    [last] = re.findall(r"waits_surely\(SyncKind kind\).*kind <= SyncKind::(\w+)", header)
    assert [kind for kind in kinds[kinds.index(last) + 1:] if kind != sync_reports.REJECTED] == list(sync_reports.MAY_WAIT)


# A place, a wide kind, and a number that is wide.
TABLE = [("train.py:1 f", "d2h_read", "1"), ("data/loader.py:123 Loader.__next__", "async_copy_blocked", "1,234,567")]


@pytest.mark.parametrize("width", [40, 66, 67, 90, 99, 100, 120, 121, 132, 133, 200, None])
def test_a_table_fits_its_terminal_and_nothing_in_it_is_cut(width):
    rows = [sync_layout.Row(Text(place), (kind, calls, "0.3043", "3 min 12 s", "12.3 %")) for place, kind, calls in TABLE]
    lines = [line.plain for line in sync_layout.lines(rows, width)]
    least = max(map(len, (line.plain for line in sync_layout.lines(rows, 0))))
    assert max(map(len, lines)) <= max(width or 1000, least) and least < 80
    assert not any(line != line.rstrip() for line in lines)
    words = "\n".join(lines).split()
    for place, kind, calls in TABLE:
        for word in (*place.split(), kind, calls, "0.3043", "12.3"):
            assert word in words
    if width is None:
        assert len(lines) == 1 + len(TABLE)


def test_names_cannot_command_a_terminal():
    assert "\x1b" not in "".join(told(report(run="\x1b[2J[bold]x")))
    assert "?[2J[bold]x, pid 1" in told(report(run="\x1b[2J[bold]x"))[0]


@pytest.mark.parametrize(("reports", "why"), [
    ([report()], None),
    ([report(), report(NEVER, reason="no_cuda")], None),
    ([report(), report(steps=0, most_in_step=None, budget=None)], None),  # a helper that takes no steps
    ([report(steps_over={"training": 2, "gradvane": 0}), report(NEVER)], "over the budget of 3 per step: 2 steps had more, at most 2 in step 13"),
    ([report(), report(NEVER)], "could not be judged: another tool"),
    ([report(gaps=1)], "could not be judged throughout: counting stopped once"),
    ([report(source="none", reason="yielded")], "could not be judged throughout: a profiler has"),
    ([report(dropped={"threads": 0, "sites": 9, "events": 5, "unbalanced": 9})], "of 5 host syncs the step is not known"),
    ([report(most_in_step=None)], "all steps were among the first"),
    ([report(budget=None)], "the agent has none"),
    ([report(steps_uncounted=0)], None),
    ([report(steps_uncounted=1)], "could not be judged throughout: 1 step was not counted"),
    ([report(steps_uncounted=1200, most_in_step=None)], "could not be judged throughout: 1,200 steps were not counted"),
    ([report(steps_uncounted=4, steps_over={"training": 1, "gradvane": 0})], "over the budget of 3 per step: 1 step had more"),
    ([report(steps=0, most_in_step=None)], "no steps were seen"),
    ([report(NEVER, reason="no_cuda")], "nothing was counted"),
    ([], "nothing was counted"),
])
def test_only_what_was_seen_to_keep_to_a_budget_passes(reports, why):
    failure = sync_reports.failure(sync_reports.Found(reports, []), off="")
    assert (failure is None) == (why is None)
    assert why is None or why in failure


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0 us"), (0.00085, "850 us"), (0.0125, "12.5 ms"), (3.214, "3.21 s"), (250.0, "4 min 10 s"), (11_100.0, "3 h 5 min"),
    (float("nan"), "nan"), (0.0009996, "1 ms"), (0.0009994, "999 us"), (0.9996, "1 s"), (59.94, "59.9 s"), (59.96, "1 min 0 s")])
def test_times_are_for_people(value, text):
    assert sync_tables.duration(value) == text


def test_reports_that_are_none_are_passed_over(tmp_path):
    for name, text in {"syncs.7.json": '{"source": "none", "reason": "no_cuda", "steps": 0}', "syncs.8.json": "{", "syncs.9.json": "[]",
                       "syncs.json": "{}", "syncs.6.json.6.new": "{}"}.items():
        (tmp_path / name).write_text(text)
    assert [one.pid for one in sync_reports.read(str(tmp_path)).reports] == [7]


def test_a_process_that_was_injected_and_left_no_report_is_known_and_passes_no_budget(tmp_path):
    for name in ("injected.7", "injected.8", "injected.x"):
        (tmp_path / name).touch()
    (tmp_path / "syncs.7.json").write_text('{"source": "none", "reason": "no_cuda", "steps": 0}')
    found = sync_reports.read(str(tmp_path))
    assert ([one.pid for one in found.reports], found.silent) == ([7], [8])
    assert sync_reports.failure(found, off="") == "the budget could not be judged: process 8 used CUDA and left no report"


def test_host_syncs_that_are_in_no_step_are_told_apart():
    parts = {"in_steps": {"calls": 30, "seconds": 1.0}, "start_up": {"calls": 300, "seconds": 1.2},
             "between_steps": {"calls": 40, "seconds": 0.5}, "other_threads": {"calls": 7, "seconds": 0.025}}
    assert ("in no step: 300 before the first step ended, 1.2 s; 40 between steps and after the last, 500 ms; "
            "7 by threads that do not train, 25 ms") in told(report(parts=parts))
