"""Host syncs as an agent counts them: beside an injected library or alone, by option or keyword, and where
they cannot be counted."""

import json
import re
import sys

import jsonschema
import planted
import pytest
import running
from planted import ASK, BEGIN, CUDA, PLANTED, STEPS, TRAINING, documents, rows, syncs


def valid(path):
    document = json.loads(path.read_text())
    jsonschema.Draft202012Validator(planted.SCHEMA).validate(document)
    return document


def counted(document):
    """Kind, calls per step and rounded blocked time of each place."""
    return [(site["kind"], site["calls_per_step"]) for site in document["sites"]]


ALL_PLANTED = [(kind, per_step) for _, kind, per_step in PLANTED]


def test_gradvane_run_takes_the_options(tmp_path):
    steps, done = running.watched(
        running.write(tmp_path, TRAINING), cwd=tmp_path, FAKE_CUDA=str(planted.FAKE),
        options=("--sync", "require", f"--sync-library={planted.FAKE}", "--sync-budget", "1", "--sync-budget-after", "4",
                 "--sync-report", str(tmp_path / "syncs.json")))
    document = valid(tmp_path / "syncs.json")
    assert counted(document) == ALL_PLANTED and document["budget"] == 1
    assert document["steps_over"] == {"training": (STEPS - 3) // 2, "gradvane": 0}
    assert [step["syncs"]["training"]["calls"] for step in steps[1:5]] == [2, 3, 2, 3]
    assert re.search(r"Step 5: 2 host syncs, budget 1: train.py:\d+ \(d2h_read, 1\)", done.stderr)


def test_attach_takes_them_as_keywords(tmp_path):
    script = running.write(tmp_path, BEGIN + f"""
    import gradvane, pathlib
    found = []
    agent = gradvane.attach(model, optimizer, sync="require", sync_budget=2, sync_budget_after=4,
                            sync_library=pathlib.Path(os.environ["FAKE_CUDA"]), sync_profiler="yield",
                            sync_threshold_us=1_000_000, sync_report=pathlib.Path("reports"))
    agent.on_incident(found.append)
    train({STEPS})
    agent.flush()
    agent.detach()
    print([(incident.kind, incident.first_step) for incident in found])
    """)
    (tmp_path / "reports").mkdir()
    done = running.python(script, cwd=tmp_path, FAKE_CUDA=str(planted.FAKE))
    (report,) = (tmp_path / "reports").iterdir()
    document = valid(report)
    assert re.fullmatch(r"syncs\.\d+\.json", report.name) and document["reason"] == "counting"
    # The copy is below the threshold.
    assert counted(document) == [("d2h_read", 1.0), ("d2h_read", 0.5)]
    assert done.stdout == "[]\n" and document["most_in_step"]["calls"] == 2


def test_the_metrics_of_a_run_have_the_planted_kinds_while_it_runs(tmp_path):
    script = running.write(tmp_path, BEGIN + ASK + """
    train(12)
    # They are exported once a second, perhaps in the middle of the training.
    print(ask("/metrics", lambda text: 'kind="d2h_read",origin="training"} 18\\n' in text
                                        and 'kind="async_copy_blocked",origin="training"} 12\\n' in text))
    """)
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path)
    found = dict(re.findall(r'^gradvane_host_syncs_total\{[^}]*kind="(\w+)",origin="training"[^}]*\} (\S+)$',
                            done.stderr, re.MULTILINE))
    assert {kind: float(value) for kind, value in found.items() if float(value)} == {"d2h_read": 18, "async_copy_blocked": 12}
    assert 'source="shared"' in done.stderr


def test_an_agent_that_comes_before_the_driver_shares_the_ledger_that_the_driver_brings(tmp_path):
    script = running.write(tmp_path, BEGIN.replace('"FAKE_DRIVER" in os.environ', "False") + f"""
    import gradvane
    gradvane.attach()
    fake, cuda = cuda, type("Nothing", (), dict.fromkeys(("fake_item", "fake_pageable_copy"), lambda *_: 0))
    train(4)
    cuda = fake
    ctypes.CDLL("libcuda.so.1").cuInit(0)
    cuda.fake_synchronize(4000)
    train({STEPS})
    """)
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path)
    (document,) = documents(done)
    assert (document["source"], document["reason"], document["gaps"]) == ("shared", "counting", 0)
    calls = {site["kind"]: site["calls"] for site in document["sites"]}
    assert calls["device"] == 1 and calls["async_copy_blocked"] == STEPS  # from the first call on
    assert document["steps"] >= STEPS


def test_where_the_agent_cannot_start_the_injected_library_reports(tmp_path):
    script = running.write(tmp_path, TRAINING)
    # An address of nobody's: found out when all the rest of the agent is there.
    done = syncs("--", sys.executable, script, cwd=tmp_path, GRADVANE_ADDRESS="203.0.113.1")
    assert done.stdout.startswith("trained ")
    assert [(row.kind, row.calls, row.per_step) for row in rows(done.stderr)] == [
        ("d2h_read", STEPS, None), ("async_copy_blocked", STEPS, None), ("d2h_read", planted.SELDOM, None)]


def test_after_detach_an_injected_process_is_left_alone(tmp_path):
    script = running.write(tmp_path, BEGIN + """
    import gradvane
    agent = gradvane.attach(model, optimizer)
    train(4)
    print(cuda.fake_is_subscribed(), end=" ")
    agent.detach()
    print(cuda.fake_is_subscribed(), end=" ")
    agent = gradvane.attach(model, optimizer)
    train(4)
    print(cuda.fake_is_subscribed())
    """)
    done = syncs("--json", "--", sys.executable, script, cwd=tmp_path)
    assert "1 0 1\n" in done.stderr


AT_EXIT = """
    import atexit
    atexit.register(lambda: print("at exit", cuda.fake_is_subscribed(), cuda.fake_dead_handles()))
"""


@pytest.mark.parametrize("watched", [True, False])
def test_nobody_is_subscribed_any_more_when_the_interpreter_ends(tmp_path, watched):
    # What is registered first is called last.
    script = running.write(tmp_path, CUDA.replace("import ctypes, os, sys", "import ctypes, os, sys\n" +
                           "    cuda = ctypes.CDLL(os.environ['FAKE_CUDA'])" + AT_EXIT) + BEGIN + f"""
    train({STEPS})
    print("before", cuda.fake_is_subscribed())
    """)
    extra = {**planted.ways("injected"), "CUDA_INJECTION64_PATH": str(planted.LIBRARY)}
    if watched:
        _, done = running.watched(script, cwd=tmp_path, **extra)
    else:
        done = running.python(script, cwd=tmp_path, **extra)
    assert done.stdout == "before 1\nat exit 0 0\n"


def test_an_evaluation_between_steps_spends_no_budget(tmp_path):
    script = running.write(tmp_path, BEGIN + """
    import gradvane
    train(12)
    model.eval()
    with torch.no_grad():
        for _ in range(50):
            cuda.fake_item(100)
    model.train()
    train(2)
    with gradvane.outside_steps():
        for _ in range(30):
            cuda.fake_item(100)
    train(2)
    """)
    done = syncs("--json", "--budget", 2, "--fail", "--", sys.executable, script, cwd=tmp_path)
    (document,) = documents(done)
    assert document["most_in_step"]["calls"] == 2 and document["parts"]["between_steps"]["calls"] == 80


SWITCHES = [{"GRADVANE_SYNC": "off"}, {"GRADVANE": "off"}]


@pytest.mark.parametrize("switch", SWITCHES)
def test_switched_off_nothing_is_counted_and_said_so(tmp_path, switch):
    script = running.write(tmp_path, TRAINING + "    print(cuda.fake_is_subscribed(), 'CUDA_INJECTION64_PATH' in os.environ)")
    done = syncs("--", sys.executable, script, cwd=tmp_path, **switch)
    (setting,) = [f"{name}={value}" for name, value in switch.items()]
    assert done.stderr == f"gradvane syncs: host syncs were not counted: {setting}\n"
    assert done.stdout.endswith("0 False\n")


TELL = ASK + """
    import json
    status = json.loads(ask("/api/v1/status", lambda text: "no_cupti" in text))
    print(status["syncs"], 'reason="no_cupti"' in ask("/metrics", lambda text: "no_cupti" in text))
    print("gradvane_host_syncs_total" in ask("/metrics", lambda text: True))
"""


@pytest.mark.parametrize("broken", ["/nonexistent/libcupti.so.13", "garbage", "wrong"])
def test_a_libcupti_that_is_none_leaves_training_unharmed_and_is_told(tmp_path, broken):
    (tmp_path / "garbage").write_bytes(b"no library at all")
    library = {"garbage": str(tmp_path / "garbage"), "wrong": str(planted.LIBRARY)}.get(broken, broken)
    script = running.write(tmp_path, CUDA + TRAINING)
    extra = {**planted.ways("injected"), "GRADVANE_SYNC_LIBRARY": library}
    plain = running.python(script, cwd=tmp_path, **extra)
    script = running.write(tmp_path, CUDA + TRAINING + TELL)
    steps, done = running.watched(script, cwd=tmp_path, **extra)
    lines = done.stdout.splitlines()
    assert lines[0] == plain.stdout.strip() and len(steps) == STEPS  # the same weights
    assert lines[1:] == ["{'source': 'none', 'reason': 'no_cupti'} True", "False"]
    assert not any("syncs" in step for step in steps)
    done = syncs("--", sys.executable, script, cwd=tmp_path, **extra)
    assert re.search(r"train, pid \d+: host syncs were not counted: there is no libcupti to count them with \(.+\)",
                     done.stderr)


def test_an_agent_that_requires_a_libcupti_does_not_start_without(tmp_path):
    script = running.write(tmp_path, TRAINING)
    extra = {**planted.ways("injected"), "GRADVANE_SYNC_LIBRARY": "/nonexistent/libcupti.so.13"}
    steps, done = running.watched(script, cwd=tmp_path, options=("--sync", "require"), **extra)
    said = "this run is not watched: sync = require: host syncs cannot be counted (no_cupti: "
    assert steps == [] and done.stdout.startswith("trained ") and said in done.stderr
    _, done = running.watched(script, cwd=tmp_path, options=("--require", "--sync", "require"), check=False, **extra)
    assert done.returncode == 3 and done.stdout == "" and said in done.stderr
    source = BEGIN + """
    import gradvane
    try:
        gradvane.attach(model, optimizer, sync="require")
    except gradvane.GradvaneError as error:
        print(error)
    train(2)
    """
    done = running.python(running.write(tmp_path, source), cwd=tmp_path, **extra)
    assert done.stdout.startswith("sync = require: host syncs cannot be counted (no_cupti: /nonexistent/")
    assert done.stdout.endswith("; set sync = auto to train without\n")
